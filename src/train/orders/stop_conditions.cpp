#include "train/orders/stop_conditions.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/text.h"
#include "train/orders/stop_request.h"

namespace loratrain {

StopConditions::StopConditions(const Job& job, std::optional<int> stop_after)
    : stop_file_(job.run.dir + "/STOP"),
      patience_(launcher_patience(std::getenv("OMPI_COMM_WORLD_SIZE"),
                                  std::getenv("OMPI_MCA_odls_base_sigkill_timeout"))),
      stop_after_(stop_after),
      limits_(time_limits(job.run.max_hours, std::getenv("SLURM_JOB_END_TIME"),
                          std::getenv("SLURM_JOB_ID"), static_cast<double>(std::time(nullptr)))),
      started_(std::chrono::steady_clock::now()) {}

double StopConditions::elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
}

std::string StopConditions::reason(int signal, std::int32_t round, bool trained) const {
    std::error_code ignored;
    if (signal != 0) return signal_text(signal) + " received";
    // Whatever lies there: a link that leads nowhere is an order as well.
    if (std::filesystem::exists(std::filesystem::symlink_status(stop_file_, ignored))) {
        return "file " + stop_file_ + " found";
    }
    if (stop_after_ && round >= *stop_after_) return cat("--stop-after ", *stop_after_, " reached");
    if (!trained) return "";
    const std::optional<TimeLimit> limit = reached_limit(limits_, pace_, elapsed());
    return limit ? limit->name + " reached" : "";
}

void StopConditions::obeyed() const {
    std::error_code ignored;
    std::filesystem::remove(stop_file_, ignored);
}

std::optional<std::int32_t> StopConditions::rounds_left(std::int32_t round) const {
    if (!stop_after_) return std::nullopt;
    return *stop_after_ - round;
}

double StopConditions::seconds_left() const {
    return loratrain::seconds_left(limits_, pace_, elapsed());
}

std::string StopConditions::interrupt_notice() {
    const double seconds = pace_.window_seconds + pace_.checkpoint_seconds;
    if (!patience_ || seconds <= *patience_) return "";
    const double patience = *std::exchange(patience_, std::nullopt);
    return cat("Ctrl-C on mpirun would lose all steps since the last checkpoint: mpirun waits ",
               human_duration(patience), ", a stop with a checkpoint takes up to ",
               human_duration(seconds), "; touch ", stop_file_, " or send SIGUSR1 to mpirun");
}

void StopConditions::window_took(double seconds) {
    pace_.window_seconds = std::max(pace_.window_seconds, seconds);
}

void StopConditions::checkpoint_took(double seconds) {
    pace_.checkpoint_seconds = std::max(pace_.checkpoint_seconds, seconds);
}

namespace {

constexpr double least_margin = 60.0;
constexpr double largest_share = 0.1;

}  // namespace

double stop_margin(const TimeLimit& limit, const Pace& pace) {
    const double needed = pace.window_seconds + pace.checkpoint_seconds;
    return std::min(std::max(needed, least_margin), largest_share * limit.seconds);
}

double seconds_left(const std::vector<TimeLimit>& limits, const Pace& pace, double elapsed) {
    double left = std::numeric_limits<double>::infinity();
    for (const TimeLimit& limit : limits) {
        left = std::min(left, limit.seconds - stop_margin(limit, pace) - elapsed);
    }
    return std::max(0.0, left);
}

std::optional<TimeLimit> reached_limit(const std::vector<TimeLimit>& limits, const Pace& pace,
                                       double elapsed) {
    for (const TimeLimit& limit : limits) {
        if (seconds_left({limit}, pace, elapsed) <= 0.0) return limit;
    }
    return std::nullopt;
}

std::vector<TimeLimit> time_limits(double max_hours, const char* slurm_end, const char* slurm_job,
                                   double now) {
    std::vector<TimeLimit> limits;
    if (max_hours > 0) {
        limits.push_back(
            {cat("time limit run.max_hours ", format_exact(max_hours), " h"), 3600.0 * max_hours});
    }
    if (slurm_end == nullptr) return limits;
    double end = 0.0;
    std::from_chars(slurm_end, slurm_end + std::strlen(slurm_end), end);
    if (end > now) {
        const char* job = slurm_job == nullptr ? "" : slurm_job;
        limits.push_back({cat("time limit of Slurm job ", job), end - now});
    }
    return limits;
}

std::optional<double> launcher_patience(const char* ranks, const char* timeout) {
    constexpr double usual_seconds = 1.0;
    if (ranks == nullptr) return std::nullopt;
    const double seconds = timeout != nullptr ? std::strtod(timeout, nullptr) : usual_seconds;
    return seconds > 0 ? seconds : usual_seconds;
}

}  // namespace loratrain
