#include "train/orders/time_limit.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/text.h"

namespace loratrain {

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
