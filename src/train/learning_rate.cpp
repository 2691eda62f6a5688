#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace loratrain {

int warmup_steps(const AdapterJob& adapter, int total_steps) {
    const double warmup = adapter.warmup_steps;
    return static_cast<int>(warmup < 1.0 ? std::ceil(total_steps * warmup) : warmup);
}

double learning_rate(const AdapterJob& adapter, int total_steps, int step) {
    const double rate = adapter.learning_rate;
    const int warmup = warmup_steps(adapter, total_steps);
    if (adapter.lr_scheduler_type == LrSchedule::constant) return rate;
    if (step < warmup) return rate * step / std::max(1, warmup);
    if (adapter.lr_scheduler_type == LrSchedule::constant_with_warmup) return rate;
    const double span = std::max(1, total_steps - warmup);
    if (adapter.lr_scheduler_type == LrSchedule::linear) {
        return rate * std::max(0.0, (total_steps - step) / span);
    }
    const double progress = (step - warmup) / span;
    return rate * std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace loratrain
