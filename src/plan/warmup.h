#pragma once

#include <cmath>

#include "config/job.h"

namespace loratrain {

/// Steps of the warm-up, as transformers 5 reads warmup_steps: a fraction of `total_steps`, rounded
/// up to whole ones, where it is below 1. None with lr_scheduler_type: constant.
inline int warmup_steps(const AdapterJob& adapter, int total_steps) {
    if (adapter.lr_scheduler_type == LrSchedule::constant) return 0;
    const double warmup = adapter.warmup_steps;
    return static_cast<int>(warmup < 1.0 ? std::ceil(total_steps * warmup) : warmup);
}

}  // namespace loratrain
