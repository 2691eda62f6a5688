#include "watch/solo_watch.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/system.h"

namespace loratrain::solo_watch {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds between_looks{100};
/// Longer than a launcher takes to end a job.
constexpr double seconds_of_turn = 4.0;
constexpr int most_turns = 4;
constexpr int unknown = -1;

struct State {
    std::mutex mutex;
    std::condition_variable changed;
    double limit = 0.0;  ///< seconds; 0 = nothing is watched
    double passed = 0.0;
    const char* what = "";
    bool has_thread = false;
};

/// Never destroyed: its thread outlives main().
State& state() {
    static State& instance = *new State;
    return instance;
}

/// What the launcher has put into the environment of ranks under one of these names.
int number_of_launcher(const std::array<const char*, 4>& names) {
    for (const char* name : names) {
        const std::string text = environment(name);
        int number = 0;
        const char* end = text.data() + text.size();
        if (!text.empty() && std::from_chars(text.data(), end, number).ptr == end) return number;
    }
    return unknown;
}

constexpr std::array rank_names{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
constexpr std::array size_names{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                "SLURM_NTASKS"};

/// "" where it cannot be read.
std::string first_line(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

/// "rank 3", of a process that Open MPI has started; else "process 77".
std::string name_of(const std::string& process) {
    const std::string all = '\0' + first_line("/proc/" + process + "/environ");
    const std::string name = std::string(1, '\0') + rank_names.front() + "=";
    const std::size_t at = all.find(name);
    return at == std::string::npos ? "process " + process
                                   : cat("rank ", all.c_str() + at + name.size());
}

/// Letter of /proc/PID/stat, behind the name in parentheses.
char process_state(const std::string& process) {
    const std::string line = first_line("/proc/" + process + "/stat");
    const std::size_t end = line.rfind(')');
    return end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
}

/// "; rank 3 on this host is stopped", of those that the same launcher has started.
std::string neighbours_text() {
    const std::string launcher = std::to_string(::getppid());
    std::istringstream children(
        first_line("/proc/" + launcher + "/task/" + launcher + "/children"));
    std::string text;
    for (std::string process; children >> process;) {
        const char letter = process_state(process);
        const bool stopped = letter == 'T' || letter == 't';
        if (process == std::to_string(::getpid()) || !(stopped || letter == 'D')) continue;
        text += cat("; ", name_of(process), " on this host ",
                    stopped ? "is stopped" : "waits for a disk or a file system");
    }
    return text;
}

[[noreturn]] void end_process(const char* what, double seconds) {
    const int rank = std::max(0, number_of_launcher(rank_names));
    log::error(to_string(Problem{
        cat("rank ", rank, " on host ", host_name()),
        cat("has come no further in ", what, " for ", format_fixed(seconds, 0), " s",
            neighbours_text()),
        "the job is ended; see whether a rank is stopped, or a file system or the network does not "
        "answer. The same command continues from the last checkpoint; run.peer_timeout says how "
        "many seconds a rank may take"}));
    std::_Exit(static_cast<int>(ExitCode::error));
}

[[noreturn]] void watch() {
    State& all = state();
    const double turn = seconds_of_turn * std::clamp(number_of_launcher(rank_names), 0, most_turns);
    std::unique_lock lock(all.mutex);
    for (Clock::time_point last = Clock::now();; last = Clock::now()) {
        if (all.limit <= 0.0) {
            all.changed.wait(lock, [&] { return all.limit > 0.0; });
            continue;
        }
        all.changed.wait_for(lock, between_looks);
        // More than that, and the process was stopped.
        const double longest = 2.0 * std::chrono::duration<double>(between_looks).count();
        all.passed += std::min(longest, seconds_since(last));
        if (all.limit > 0.0 && all.passed > all.limit + turn) end_process(all.what, all.passed);
    }
}

}  // namespace

void begin(double seconds, const char* what) {
    if (number_of_launcher(size_names) < 2) return;
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.limit = seconds;
    all.passed = 0.0;
    all.what = what;
    all.changed.notify_all();
    if (seconds <= 0.0 || std::exchange(all.has_thread, true)) return;
    std::thread(watch).detach();
}

void advance(const char* what) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.passed = 0.0;
    all.what = what;
}

void end() {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.limit = 0.0;
}

}  // namespace loratrain::solo_watch
