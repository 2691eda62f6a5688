#include "fuzz/supervisor.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/system.h"
#include "support/files.h"

namespace loratrain::fuzz {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t cases_per_process = 2000;
constexpr std::chrono::milliseconds between_looks{2};
constexpr int finding_code = 3;

/// What a process with cases tells the one that watches it.
struct Board {
    std::atomic<std::uint64_t> at{0};  ///< the case it is at
    std::atomic<std::uint64_t> refused{0};
    char message[2000] = {};
};

class SharedBoard {
  public:
    SharedBoard()
        : memory_(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0)) {
        if (memory_ == MAP_FAILED) throw Error("mmap failed");
        board_ = new (memory_) Board;
    }
    ~SharedBoard() { ::munmap(memory_, sizeof(Board)); }
    SharedBoard(const SharedBoard&) = delete;
    SharedBoard& operator=(const SharedBoard&) = delete;
    Board& operator*() { return *board_; }
    Board* operator->() { return board_; }

  private:
    void* memory_;
    Board* board_ = nullptr;
};

/// Everything but the sanitizers' reports is noise.
void redirect_output(const std::string& errors) {
    const int nothing = ::open("/dev/null", O_WRONLY);
    const int report = ::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(report, STDERR_FILENO);
}

[[noreturn]] void work(const TargetKind& kind, std::uint64_t seed, std::uint64_t first,
                       std::uint64_t last, double seconds, const std::string& folder,
                       Board& board) {
    redirect_output(folder + "/errors");
    fs::create_directories(folder + "/case");
    try {
        const std::unique_ptr<Target> target = kind.make(folder + "/case");
        for (std::uint64_t i = first; i < last; ++i) {
            if (i > first && processor_seconds() > seconds) break;
            board.at = i;
            Draw draw(case_key(seed, kind, i));
            try {
                target->run(draw);
            } catch (const InputError&) {
                ++board.refused;
            }
        }
    } catch (const std::exception& error) {
        std::strncpy(board.message, error.what(), sizeof(board.message) - 1);
        ::_exit(finding_code);
    }
    ::_exit(0);
}

std::uint64_t resident_bytes(pid_t process) {
    return proc_value(cat("/proc/", process, "/status").c_str(), "VmRSS");
}

/// The machine may have other work to do.
double processor_seconds_of(pid_t process) {
    clockid_t clock{};
    timespec spent{};
    if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &spent) != 0)
        return 0;
    return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

/// The part of a sanitizer's report that says what and where, or the last lines.
std::string report_of(const std::string& path) {
    constexpr std::size_t most = 3000;
    const std::string text = test::get(path);
    const std::size_t error = text.find("ERROR: ");
    const std::size_t runtime = text.find("runtime error: ");
    std::size_t begin = std::min(error, runtime);
    if (begin == std::string::npos) begin = text.size() > 400 ? text.size() - 400 : 0;
    begin = text.rfind('\n', begin);
    return text.substr(begin == std::string::npos ? 0 : begin + 1, most);
}

std::string end_text(int status, const Board& board) {
    if (WIFSIGNALED(status)) return cat("ended by signal ", WTERMSIG(status));
    if (WEXITSTATUS(status) == finding_code) return board.message;
    return cat("ended with code ", WEXITSTATUS(status));
}

/// One process: from case `first` to `last` or to a finding. Returns the case after its last one.
std::uint64_t run_process(const TargetKind& kind, std::uint64_t seed, std::uint64_t first,
                          std::uint64_t last, const Limits& limits, Tally& tally) {
    const test::TempDir folder;
    SharedBoard board;
    board->at = first;
    const double left = limits.all_seconds > 0.0 ? limits.all_seconds - tally.all_seconds
                                                 : std::numeric_limits<double>::infinity();
    const pid_t process = ::fork();
    if (process < 0) throw Error("fork failed");
    if (process == 0) work(kind, seed, first, last, left, folder.path(), *board);
    std::uint64_t seen = first;
    auto since = Clock::now();
    double spent_before = 0.0;
    int status = 0;
    rusage used{};
    std::string ended_for;
    for (int look = 0; ::wait4(process, &status, WNOHANG, &used) == 0; ++look) {
        const std::uint64_t at = board->at;
        const double spent = processor_seconds_of(process);
        if (at != seen) {
            since = Clock::now();
            spent_before = spent;
        }
        seen = at;
        const double seconds = spent - spent_before;
        tally.add({0, 0, 0, 0.0, seconds, at});
        if (seconds > limits.seconds || seconds_since(since) > limits.idle_seconds) {
            ended_for = cat("did not end in ", format_fixed(seconds, 1), " s");
        }
        if (look % 16 == 0 && resident_bytes(process) > limits.bytes) {
            ended_for = cat("took more than ", human_bytes(limits.bytes));
        }
        if (!ended_for.empty()) {
            ::kill(process, SIGKILL);
            ::wait4(process, &status, 0, &used);
            break;
        }
        std::this_thread::sleep_for(between_looks);
    }
    tally.refused += board->refused;
    tally.all_seconds += seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
    if (ended_for.empty() && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        tally.cases += board->at + 1 - first;
        return board->at + 1;
    }
    const std::uint64_t found = board->at;
    tally.cases += found + 1 - first;
    ++tally.findings;
    std::printf("FINDING: --target %s --seed %llu --case %llu\n%s\n%s\n", kind.name,
                static_cast<unsigned long long>(seed), static_cast<unsigned long long>(found),
                ended_for.empty() ? end_text(status, *board).c_str() : ended_for.c_str(),
                report_of(folder.file("errors")).c_str());
    std::fflush(stdout);
    return found + 1;
}

}  // namespace

void Tally::add(const Tally& other) {
    cases += other.cases;
    refused += other.refused;
    findings += other.findings;
    all_seconds += other.all_seconds;
    if (other.slowest <= slowest) return;
    slowest = other.slowest;
    slowest_case = other.slowest_case;
}

std::uint64_t case_key(std::uint64_t seed, const TargetKind& kind, std::uint64_t number) {
    return mix_key(mix_key(seed, hash_name(kind.name)), number);
}

Tally run_cases(const TargetKind& kind, std::uint64_t seed, std::uint64_t first, std::uint64_t last,
                const Limits& limits) {
    Tally tally;
    while (first < last) {
        if (limits.all_seconds > 0.0 && tally.all_seconds >= limits.all_seconds) break;
        const std::uint64_t end = std::min(last, first + cases_per_process);
        first = run_process(kind, seed, first, end, limits, tally);
    }
    return tally;
}

void run_one(const TargetKind& kind, std::uint64_t seed, std::uint64_t number) {
    const std::string folder =
        (fs::temp_directory_path() / cat("loratrain-case-", kind.name, "-", number)).string();
    fs::remove_all(folder);
    fs::create_directories(folder);
    std::printf("in %s\n", folder.c_str());
    const std::unique_ptr<Target> target = kind.make(folder);
    Draw draw(case_key(seed, kind, number));
    try {
        target->run(draw);
        std::printf("ended normally\n");
    } catch (const InputError& error) {
        std::printf("refused: %s\n", error.what());
    }
}

}  // namespace loratrain::fuzz
