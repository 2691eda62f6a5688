#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// A few schedules.
struct LrSchedules {
    std::array<std::optional<LrSchedule>, 4> types{};
    constexpr bool contain(LrSchedule type) const {
        return std::find(types.begin(), types.end(), type) != types.end();
    }
    /// "cosine, warmup_stable_decay"
    std::string words() const;
};

/// A number of lr_scheduler_kwargs: its key, where it is, and whose it is.
struct LrNumber {
    const char* key;
    std::optional<double> LrSchedulerKwargs::*field;
    double least;
    bool whole;  ///< a number of steps
    LrSchedules takers;
};

inline constexpr std::array<LrNumber, 9> lr_numbers{{
    {"num_cycles",
     &LrSchedulerKwargs::num_cycles,
     0.0,
     false,
     {{LrSchedule::cosine, LrSchedule::cosine_with_restarts, LrSchedule::cosine_with_min_lr,
       LrSchedule::warmup_stable_decay}}},
    {"min_lr", &LrSchedulerKwargs::min_lr, 0.0, false, {{LrSchedule::cosine_with_min_lr}}},
    {"min_lr_rate",
     &LrSchedulerKwargs::min_lr_rate,
     0.0,
     false,
     {{LrSchedule::cosine_with_min_lr}}},
    {"lr_end", &LrSchedulerKwargs::lr_end, 0.0, false, {{LrSchedule::polynomial}}},
    {"power", &LrSchedulerKwargs::power, 0.0, false, {{LrSchedule::polynomial}}},
    {"timescale", &LrSchedulerKwargs::timescale, 1.0, true, {{LrSchedule::inverse_sqrt}}},
    {"num_decay_steps",
     &LrSchedulerKwargs::num_decay_steps,
     0.0,
     true,
     {{LrSchedule::warmup_stable_decay}}},
    {"num_stable_steps",
     &LrSchedulerKwargs::num_stable_steps,
     0.0,
     true,
     {{LrSchedule::warmup_stable_decay}}},
    {"min_lr_ratio",
     &LrSchedulerKwargs::min_lr_ratio,
     0.0,
     false,
     {{LrSchedule::warmup_stable_decay}}},
}};

}  // namespace loratrain
