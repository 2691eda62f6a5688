#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/rungs.h"

namespace loratrain {

namespace {

constexpr double half_a_wave = 0.5;
constexpr double usual_timescale = 10000.0;

double falling_cosine(double waves, double progress) {
    return 0.5 * (1.0 + std::cos(2.0 * std::numbers::pi * waves * progress));
}

double restarting_cosine(double cycles, double progress) {
    if (progress >= 1.0) return 0.0;
    return falling_cosine(half_a_wave, std::fmod(cycles * progress, 1.0));
}

double ramp_up(LrRamp ramp, double progress) {
    if (ramp == LrRamp::linear) return progress;
    if (ramp == LrRamp::cosine) return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
    return 1.0 - std::sqrt(1.0 - progress);
}

double ramp_down(LrRamp ramp, double waves, double progress) {
    if (ramp == LrRamp::linear) return 1.0 - progress;
    if (ramp == LrRamp::cosine) return falling_cosine(waves, progress);
    return 1.0 - std::sqrt(progress);
}

double above(double least, double factor) {
    return std::max(0.0, least + (1.0 - least) * factor);
}

/// Of the learning rate, with a warm-up, which is not linear alone.
double warmup_stable_decay(const LrSchedulerKwargs& kwargs, int warmup, int total, int step) {
    const double least = kwargs.min_lr_ratio.value_or(0.0);
    if (step < warmup) {
        return above(least, ramp_up(kwargs.warmup_type, static_cast<double>(step) / warmup));
    }
    const double decay = kwargs.num_decay_steps.value_or(0.0);
    const double stable = kwargs.num_stable_steps.value_or(total - warmup - decay);
    const double into_decay = step - warmup - stable;
    if (into_decay < 0.0) return 1.0;
    if (into_decay >= decay) return least;
    const double waves = kwargs.num_cycles.value_or(half_a_wave);
    return above(least, ramp_down(kwargs.decay_type, waves, into_decay / std::max(1.0, decay)));
}

/// Of the learning rate, after the warm-up.
double factor_after_warmup(const AdapterJob& adapter, int warmup, int total, int step) {
    const LrSchedulerKwargs& kwargs = adapter.lr_scheduler_kwargs;
    const double progress = (step - warmup) / static_cast<double>(std::max(1, total - warmup));
    const double waves = kwargs.num_cycles.value_or(half_a_wave);
    switch (adapter.lr_scheduler_type) {
        case LrSchedule::cosine:
            return std::max(0.0, falling_cosine(waves, progress));
        case LrSchedule::cosine_with_restarts:
            return restarting_cosine(kwargs.num_cycles.value_or(1.0), progress);
        case LrSchedule::cosine_with_min_lr: {
            const double least =
                kwargs.min_lr ? *kwargs.min_lr / adapter.learning_rate : *kwargs.min_lr_rate;
            return above(least, falling_cosine(waves, progress));
        }
        case LrSchedule::polynomial: {
            const double least = kwargs.lr_end.value_or(usual_lr_end) / adapter.learning_rate;
            const double left = std::max(0.0, 1.0 - progress);
            return above(least, std::pow(left, kwargs.power.value_or(1.0)));
        }
        case LrSchedule::inverse_sqrt: {
            const double scale = kwargs.timescale.value_or(warmup > 0 ? warmup : usual_timescale);
            return 1.0 / std::sqrt((step - warmup + scale) / scale);
        }
        default:
            return 1.0;
    }
}

}  // namespace

double learning_rate(const AdapterJob& adapter, int total_steps, int step) {
    const double rate = adapter.learning_rate;
    const int warmup = warmup_steps(adapter, total_steps);
    const LrSchedule type = adapter.lr_scheduler_type;
    if (type == LrSchedule::constant) return rate;
    if (type == LrSchedule::warmup_stable_decay) {
        return rate * warmup_stable_decay(adapter.lr_scheduler_kwargs, warmup, total_steps, step);
    }
    if (step < warmup) return rate * step / std::max(1, warmup);
    if (type == LrSchedule::linear) {
        const double span = std::max(1, total_steps - warmup);
        return rate * std::max(0.0, (total_steps - step) / span);
    }
    return rate * factor_after_warmup(adapter, warmup, total_steps, step);
}

}  // namespace loratrain
