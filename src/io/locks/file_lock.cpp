#include "io/locks/file_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/plain_file.h"
#include "base/system.h"
#include "io/json_text.h"
#include "io/raw_file.h"

namespace loratrain {

namespace {

/// The error of a lock that a live process holds.
InputError in_use(const std::string& path, const std::string& what, const std::string& holder) {
    return {path,
            what + " is in use by another process" + (holder.empty() ? "" : " (" + holder + ")"),
            "wait until it has finished, or choose another directory"};
}

using Clock = std::chrono::steady_clock;

constexpr double longest_look = 1.0;
constexpr double looks_per_beat = 4.0;

std::chrono::duration<double> seconds(double count) {
    return std::chrono::duration<double>(count);
}

std::int64_t ticks() {
    return Clock::now().time_since_epoch().count();
}

/// Where process ids mean the same: this start of this machine, this container.
std::string process_table() {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    struct stat space {};
    if (::stat("/proc/self/ns/pid", &space) != 0) return "";
    return cat(boot, " ", space.st_ino);
}

/// Start of a process in ticks since the machine's; -1 = there is none, or only its remains.
std::int64_t start_of_process(std::int64_t process) {
    std::ifstream file(cat("/proc/", process, "/stat"));
    std::string line;
    if (!std::getline(file, line)) return -1;
    std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
    constexpr int fields_between = 18;
    std::string state;
    std::string ignored;
    fields >> state;
    for (int i = 0; i < fields_between; ++i) fields >> ignored;
    std::int64_t start = -1;
    fields >> start;
    return state == "Z" || state == "X" ? -1 : start;
}

std::string describe_this_process() {
    OrderedJson json;
    json["holder"] = this_process_text();
    json["process_table"] = process_table();
    json["process"] = ::getpid();
    json["started"] = start_of_process(::getpid());
    json["slurm_job"] = environment("SLURM_JOB_ID");
    json["slurm_restarts"] = environment("SLURM_RESTART_COUNT");
    json["taken"] = ticks();
    return dump_json(json) + "\n";
}

/// What describe_this_process() of another process has written.
struct Holder {
    std::string name;
    std::string process_table;
    std::string slurm_job;
    std::string slurm_restarts;
    std::int64_t process = 0;
    std::int64_t started = -1;
};

/// nullopt = damaged.
std::optional<Holder> read_holder(const std::string& contents) {
    try {
        const OrderedJson json = parse_ordered_json(contents);
        return Holder{json.value("holder", ""),
                      json.value("process_table", ""),
                      json.value("slurm_job", ""),
                      json.value("slurm_restarts", ""),
                      json.value("process", std::int64_t{0}),
                      json.value("started", std::int64_t{-1})};
    } catch (const OrderedJson::exception&) {
        return std::nullopt;
    }
}

std::string holder_of(const std::string& contents) {
    return read_holder(contents).value_or(Holder{}).name;
}

/// Whether the writer of the contents is known to be alive or dead; nullopt = only time can tell.
std::optional<bool> known_to_live(const std::string& contents) {
    const std::optional<Holder> holder = read_holder(contents);
    if (!holder) return std::nullopt;
    const std::string& job = holder->slurm_job;
    const bool same_job = !job.empty() && job == environment("SLURM_JOB_ID");
    if (same_job && holder->slurm_restarts != environment("SLURM_RESTART_COUNT")) return false;
    const std::string& table = holder->process_table;
    if (table.empty() || table != process_table()) return std::nullopt;
    const std::int64_t start = start_of_process(holder->process);
    return start >= 0 && start == holder->started;
}

/// A file as it is on the server: opening it asks there, where stat may use what it knows.
struct Sight {
    std::string contents;
    std::int64_t touched = 0;  ///< nanoseconds of its own clock
};

/// nullopt = there is none.
std::optional<Sight> look_at(const std::string& path) {
    const int descriptor = open_plain_file(path, O_RDONLY);
    if (descriptor < 0 && errno == ENOENT) return std::nullopt;
    if (descriptor < 0) throw Error(path + ": cannot be opened: " + system_reason());
    std::array<char, 1024> text{};
    struct stat status {};
    const ssize_t got = ::pread(descriptor, text.data(), text.size() - 1, 0);
    const int failed = ::fstat(descriptor, &status);
    ::close(descriptor);
    if (got < 0 || failed != 0) throw Error(path + ": cannot be read: " + system_reason());
    constexpr std::int64_t nanoseconds = 1000000000;
    return Sight{text.data(), status.st_mtim.tv_sec * nanoseconds + status.st_mtim.tv_nsec};
}

/// False when the file exists already.
bool create(const std::string& path, const std::string& contents) {
    const int descriptor = open_plain_file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (descriptor < 0 && errno == EEXIST) return false;
    if (descriptor < 0) throw Error(path + ": cannot be created: " + system_reason());
    const ssize_t put = ::write(descriptor, contents.data(), contents.size());
    const int failed = ::close(descriptor);
    if (put != static_cast<ssize_t>(contents.size()) || failed != 0) {
        const std::string reason = system_reason();
        ::unlink(path.c_str());
        throw Error(path + ": cannot be written: " + reason);
    }
    return true;
}

/// Watches until there is a heartbeat or a change (true), or the patience ends (false). Only the
/// time between looks counts: the holder may have been suspended together with this process.
bool changes(const std::string& path, const Sight& first, const HeartbeatOptions& options) {
    const double pause = std::min(longest_look, options.beat / looks_per_beat);
    double watched = 0.0;
    while (watched < options.patience) {
        std::this_thread::sleep_for(seconds(pause));
        watched += pause;
        const std::optional<Sight> now = look_at(path);
        if (!now || now->contents != first.contents || now->touched != first.touched) return true;
    }
    return false;
}

void end_process(const std::string& message) {
    log::error(message);
    std::_Exit(static_cast<int>(ExitCode::error));
}

constexpr std::size_t longest_holder = 255;

/// What a hard link may have put there: locking would empty it.
bool is_longer_than_a_holder(int descriptor) {
    char next = 0;
    return ::pread(descriptor, &next, 1, longest_holder) > 0;
}

std::string holder_text(int descriptor) {
    std::array<char, longest_holder + 1> text{};
    const ssize_t got = ::pread(descriptor, text.data(), text.size() - 1, 0);
    return got > 0 ? text.data() : "";
}

void write_holder(int descriptor) {
    const std::string text = this_process_text().substr(0, longest_holder);
    // The text only helps a person; the lock itself does not depend on it.
    if (::ftruncate(descriptor, 0) != 0) return;
    if (::pwrite(descriptor, text.data(), text.size(), 0) < 0) return;
}

/// As Lustre and NFS say it when they are mounted without locks.
bool means_no_locks(int error) {
    return error == ENOSYS || error == ENOTSUP || error == ENOLCK;
}

}  // namespace

std::string this_process_text() {
    const std::string job = environment("SLURM_JOB_ID");
    return cat("process ", ::getpid(), " on ", host_name(), job.empty() ? "" : ", Slurm job ", job);
}

HeartbeatLock::HeartbeatLock(std::string path, const std::string& what, HeartbeatOptions options)
    : path_(std::move(path)), mine_(describe_this_process()), options_(std::move(options)) {
    if (!options_.lost) options_.lost = end_process;
    acquire(what);
    thread_ = std::thread([this] { keep_alive(); });
}

HeartbeatLock::~HeartbeatLock() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    wake_.notify_all();
    thread_.join();
    try {
        const std::optional<Sight> now = look_at(path_);
        if (now && now->contents == mine_) ::unlink(path_.c_str());
    } catch (const std::exception& error) {
        log::warn(error.what());
    }
}

void HeartbeatLock::acquire(const std::string& what) {
    while (!create(path_, mine_)) {
        const std::optional<Sight> seen = look_at(path_);
        if (!seen) continue;
        const std::string holder = holder_of(seen->contents);
        const std::optional<bool> lives = known_to_live(seen->contents);
        if (lives.value_or(false)) throw in_use(path_, what, holder);
        if (!lives) {
            log::info(cat(what, " is held by ", holder.empty() ? "another process" : holder,
                          ", and its file system has no locks: waiting up to ",
                          format_fixed(options_.patience, 0), " s for a heartbeat"));
            const bool changed = changes(path_, *seen, options_);
            if (changed && !look_at(path_)) continue;
            if (changed) throw in_use(path_, what, holder);
        }
        return take_over(seen->contents, what);
    }
}

void HeartbeatLock::take_over(const std::string& dead, const std::string& what) {
    const std::string temporary = cat(path_, ".tmp", ::getpid(), "-", ticks());
    create(temporary, mine_);
    const std::optional<Sight> before = look_at(path_);
    if (before && before->contents != dead) {
        ::unlink(temporary.c_str());
        throw in_use(path_, what, holder_of(before->contents));
    }
    if (std::rename(temporary.c_str(), path_.c_str()) != 0) {
        const std::string reason = system_reason();
        ::unlink(temporary.c_str());
        throw Error(path_ + ": cannot be replaced: " + reason);
    }
    std::this_thread::sleep_for(seconds(options_.settle));
    const std::optional<Sight> after = look_at(path_);
    if (!after || after->contents != mine_) {
        throw in_use(path_, what, after ? holder_of(after->contents) : "");
    }
    const std::string holder = holder_of(dead);
    left_behind_ = holder.empty() ? "another process" : holder;
}

bool HeartbeatLock::still_held() {
    try {
        const std::optional<Sight> now = look_at(path_);
        if (!now) return create(path_, mine_);
        if (now->contents != mine_) return false;
        ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
    } catch (const std::exception&) {
        return true;  // a server that is away for a moment; the others cannot see the file either
    }
    return true;
}

void HeartbeatLock::keep_alive() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, seconds(options_.beat), [this] { return done_; })) {
        lock.unlock();
        if (!still_held()) {
            return options_.lost(path_ +
                                 ": another process has taken over (was this one suspended?); "
                                 "ended, so that both do not write to the same files");
        }
        lock.lock();
    }
}

FileLock::FileLock(const std::string& path, const std::string& what) {
    descriptor_ = open_plain_file(path, O_RDWR | O_CREAT);
    if (descriptor_ < 0) {
        throw InputError(path, "lock file cannot be opened: " + system_reason(),
                         "check the directory and its permissions");
    }
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
        if (is_longer_than_a_holder(descriptor_)) {
            ::close(descriptor_);
            throw InputError(path, "is not a lock file of loratrain: it is too long",
                             "move that file elsewhere, or choose another directory");
        }
        left_behind_ = holder_text(descriptor_);
        write_holder(descriptor_);
        return;
    }
    const int error = errno;
    const std::string reason = system_reason();
    const std::string holder = holder_text(descriptor_);
    ::close(descriptor_);
    descriptor_ = -1;
    if (error == EWOULDBLOCK) throw in_use(path, what, holder);
    if (!means_no_locks(error)) throw Error(path + ": cannot be locked: " + reason);
    heartbeat_ = std::make_unique<HeartbeatLock>(path + ".held", what);
    left_behind_ = heartbeat_->left_behind();
    substitute_ = cat("the file system of ", path, " has no locks (flock: ", reason, "); ",
                      heartbeat_->path(), " with heartbeats is used instead");
}

FileLock::~FileLock() {
    if (descriptor_ < 0) return;
    // An empty file says that the holder has ended in order.
    if (::ftruncate(descriptor_, 0) != 0) left_behind_.clear();
    ::close(descriptor_);
}

}  // namespace loratrain
