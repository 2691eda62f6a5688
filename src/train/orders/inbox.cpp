#include "train/orders/inbox.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/plain_file.h"
#include "config/adapter_name.h"
#include "io/files.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* inbox_name = "inbox";
constexpr const char* accepted_name = "accepted";
constexpr const char* rejected_name = "rejected";
constexpr const char* stop_suffix = ".stop";
constexpr std::uintmax_t largest_file = 16U << 20U;
constexpr std::chrono::milliseconds settling_time{1000};
constexpr std::chrono::milliseconds longest_wait{1200};
constexpr std::chrono::milliseconds between_looks{20};

bool adds(const fs::path& path) {
    return path.extension() == ".yaml" || path.extension() == ".yml";
}

bool stops(const fs::path& path) {
    return path.extension() == stop_suffix;
}

/// Clocks of file servers differ: a time far in the future says nothing.
bool is_settled(fs::file_time_type changed) {
    const auto age = fs::file_time_type::clock::now() - changed;
    return std::chrono::abs(age) > settling_time;
}

/// The files of a folder by `wanted`, hidden ones and folders left out; links, pipes and others
/// among them.
template <class Wanted>
std::vector<fs::path> files_of(const fs::path& dir, Wanted wanted) {
    std::vector<fs::path> files;
    std::error_code error;
    std::error_code none;
    for (fs::directory_iterator entry(dir, error), end; !error && entry != end;
         entry.increment(error)) {
        const bool hidden = entry->path().filename().string().starts_with('.');
        if (!hidden && !entry->is_directory(none) && wanted(entry->path())) {
            files.push_back(entry->path());
        }
    }
    std::sort(files.begin(), files.end());
    return files;
}

/// The number at the start of "0012-name.yaml"; 0 = none.
int number_of(const fs::path& path) {
    const std::string name = path.filename().string();
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    const bool numbered = digits > 0 && digits < 9 && name.substr(digits, 1) == "-";
    return numbered ? std::stoi(name.substr(0, digits)) : 0;
}

std::vector<fs::path> accepted_files(const fs::path& inbox) {
    std::vector<fs::path> files = files_of(inbox / accepted_name, adds);
    std::stable_sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
        return number_of(a) < number_of(b);
    });
    return files;
}

void check_is_plain(const fs::path& path) {
    const std::string kind = not_a_plain_file(path.string());
    if (kind.empty()) return;
    throw InputError(path.string(), cat("is ", kind, ", must be a plain file"),
                     "copy the file itself there");
}

std::string read_order(const fs::path& path) {
    check_is_plain(path);
    if (fs::file_size(path) > largest_file) {
        throw InputError(path.string(), human_bytes(fs::file_size(path)) + " is too large");
    }
    return read_text(path.string());
}

bool is_unchanged(const InboxFile& file) {
    try {
        return read_order(file.path) == file.text;
    } catch (const std::exception&) {
        return false;
    }
}

fs::path next_accepted(const fs::path& inbox, const fs::path& source) {
    const std::vector<fs::path> before = accepted_files(inbox);
    std::ostringstream name;
    name << std::setw(4) << std::setfill('0') << (before.empty() ? 1 : number_of(before.back()) + 1)
         << '-' << source.filename().string();
    return inbox / accepted_name / name.str();
}

/// Where "accepted/0012-name.yaml" was read.
fs::path source_of(const fs::path& inbox, const fs::path& accepted) {
    const std::string name = accepted.filename().string();
    return inbox / (number_of(accepted) > 0 ? name.substr(name.find('-') + 1) : name);
}

}  // namespace

Inbox::Inbox(const std::string& run_dir) : dir_((fs::path(run_dir) / inbox_name).string()) {
    make_directory(dir_);
    for (const InboxFile& accepted : accepted_additions(run_dir)) {
        const InboxFile file{source_of(dir_, accepted.path).string(), accepted.text};
        if (!is_unchanged(file)) continue;
        log::info(cat(file.path, " is part of this run already, as ", accepted.path));
        remove_read(file);
    }
}

void Inbox::attempt(const std::string& path, const std::function<void()>& work) {
    try {
        work();
    } catch (const std::exception& error) {
        log::warn(cat(path, " is ignored: ", error.what()));
        left_alone_.insert(fs::path(path).filename().string());
    }
}

bool Inbox::may_read(const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    if (!left_alone_.contains(name)) attempt(path, [&] { check_is_plain(path); });
    return !left_alone_.contains(name);
}

Inbox::Changes Inbox::changes() {
    Changes found;
    for (const fs::path& path : files_of(dir_, adds)) {
        if (!may_read(path.string())) continue;
        std::error_code error;
        const fs::file_time_type changed = fs::last_write_time(path, error);
        if (!error) found.emplace_back(changed, path.string());
    }
    std::sort(found.begin(), found.end());
    return found;
}

Inbox::Changes Inbox::young_files() {
    Changes young = changes();
    std::erase_if(young, [](const auto& change) { return is_settled(change.first); });
    return young;
}

void Inbox::let_settle() {
    const auto end = std::chrono::steady_clock::now() + longest_wait;
    while (!young_files().empty() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(between_looks);
    }
    for (const auto& [changed, path] : young_files()) {
        log::warn(cat(path, " still changes; the next start of this run will read it"));
    }
}

Inbox::Orders Inbox::look() {
    Orders orders;
    for (const auto& change : changes()) {
        if (!is_settled(change.first)) continue;
        const std::string& path = change.second;
        attempt(path, [&] { orders.additions.push_back({path, read_order(path)}); });
    }
    for (const fs::path& path : files_of(dir_, stops)) {
        if (may_read(path.string())) orders.stops.push_back(path.stem().string());
    }
    return orders;
}

std::string Inbox::accept(const InboxFile& file) {
    const fs::path target = next_accepted(dir_, file.path);
    try {
        make_directory(target.parent_path().string());
        write_text_atomic(target.string(), file.text);
    } catch (const std::exception& error) {
        throw InputError(file.path, cat("cannot be accepted: ", error.what()));
    }
    remove_read(file);
    return target.string();
}

void Inbox::remove_read(const InboxFile& file) {
    if (is_unchanged(file)) return attempt(file.path, [&] { fs::remove(file.path); });
    std::error_code none;
    if (!fs::exists(file.path, none)) return;
    log::warn(cat(file.path, " has changed since it was read; its new contents are a new request"));
}

void Inbox::reject_path(const std::string& path, const std::string& why) {
    attempt(path, [&] {
        const fs::path rejected = fs::path(dir_) / rejected_name;
        make_directory(rejected.string());
        const fs::path target = rejected / fs::path(path).filename();
        write_text_atomic(target.string() + ".error", why + "\n");
        fs::rename(path, target);
        log::warn(cat(path, " is rejected, the run goes on without it (moved to ", target.string(),
                      "): ", why));
    });
}

void Inbox::reject(const InboxFile& file, const std::string& why) {
    if (is_unchanged(file)) return reject_path(file.path, why);
    log::warn(cat("what ", file.path, " held before its last change is rejected: ", why));
}

void Inbox::obeyed(const std::string& adapter) {
    const std::string path = (fs::path(dir_) / (adapter + stop_suffix)).string();
    attempt(path, [&] { fs::remove(path); });
}

void Inbox::reject_stop(const std::string& adapter, const std::string& why) {
    reject_path((fs::path(dir_) / (adapter + stop_suffix)).string(), why);
}

std::vector<InboxFile> accepted_additions(const std::string& run_dir) {
    std::vector<InboxFile> files;
    for (const fs::path& path : accepted_files(fs::path(run_dir) / inbox_name)) {
        files.push_back({path.string(), read_order(path)});
    }
    return files;
}

void set_orders_aside(const std::string& run_dir, const std::string& target) {
    const fs::path inbox = fs::path(run_dir) / inbox_name;
    std::vector<fs::path> paths = files_of(inbox, stops);
    for (const char* name : {accepted_name, rejected_name}) {
        if (fs::exists(inbox / name)) paths.push_back(inbox / name);
    }
    const fs::path aside = fs::path(target) / inbox_name;
    for (const fs::path& path : paths) {
        make_directory(aside);
        fs::rename(path, aside / path.filename());
    }
}

void request_stop(const std::string& run_dir, const std::string& adapter) {
    if (!is_adapter_name(adapter)) {
        throw InputError("stop", "'" + adapter + "' cannot be the name of an adapter");
    }
    const fs::path inbox = fs::path(run_dir) / inbox_name;
    make_directory(inbox.string());
    write_text_atomic((inbox / (adapter + stop_suffix)).string(), "");
}

}  // namespace loratrain
