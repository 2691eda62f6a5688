#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace loratrain {
namespace {

AdapterJob adapter_with(LrSchedule schedule, int warmup) {
    AdapterJob adapter;
    adapter.learning_rate = 1.0;
    adapter.lr_scheduler_type = schedule;
    adapter.warmup_steps = warmup;
    return adapter;
}

/// Factor of transformers.optimization's _get_*_schedule_with_warmup_lr_lambda.
double hugging_face(LrSchedule schedule, int warmup, int total, int step) {
    if (schedule == LrSchedule::constant) return 1.0;
    if (step < warmup) return static_cast<double>(step) / std::max(1, warmup);
    if (schedule == LrSchedule::constant_with_warmup) return 1.0;
    if (schedule == LrSchedule::linear) {
        return std::max(0.0, static_cast<double>(total - step) / std::max(1, total - warmup));
    }
    const double progress = static_cast<double>(step - warmup) / std::max(1, total - warmup);
    return std::max(0.0, 0.5 * (1.0 + std::cos(std::acos(-1.0) * 0.5 * 2.0 * progress)));
}

/// transformers 5: TrainingArguments.get_warmup_steps.
TEST(LearningRate, WarmupBelowOneIsAFractionOfTheSteps) {
    AdapterJob adapter;
    const auto steps = [&](double warmup, int total) {
        adapter.warmup_steps = warmup;
        return warmup_steps(adapter, total);
    };
    EXPECT_EQ(steps(0.1, 100), 10);
    EXPECT_EQ(steps(0.1, 101), 11);
    EXPECT_EQ(steps(0.5, 1), 1);
    EXPECT_EQ(steps(0.0, 100), 0);
    EXPECT_EQ(steps(1.0, 100), 1);
    EXPECT_EQ(steps(25.0, 20), 25);
}

TEST(LearningRate, EqualsHuggingFace) {
    for (const LrSchedule schedule : {LrSchedule::constant, LrSchedule::constant_with_warmup,
                                      LrSchedule::linear, LrSchedule::cosine}) {
        for (const int warmup : {0, 1, 3, 10, 25}) {
            for (const int total : {1, 10, 20}) {
                for (int step = 0; step < total + 3; ++step) {
                    EXPECT_NEAR(learning_rate(adapter_with(schedule, warmup), total, step),
                                hugging_face(schedule, warmup, total, step), 1e-15)
                        << static_cast<int>(schedule) << " " << warmup << " " << total << " "
                        << step;
                }
            }
        }
    }
}

TEST(LearningRate, KnownValues) {
    const AdapterJob linear = adapter_with(LrSchedule::linear, 2);
    EXPECT_DOUBLE_EQ(learning_rate(linear, 10, 0), 0.0);
    EXPECT_DOUBLE_EQ(learning_rate(linear, 10, 1), 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(linear, 10, 2), 1.0);
    EXPECT_DOUBLE_EQ(learning_rate(linear, 10, 6), 0.5);
    const AdapterJob cosine = adapter_with(LrSchedule::cosine, 0);
    EXPECT_DOUBLE_EQ(learning_rate(cosine, 10, 0), 1.0);
    EXPECT_NEAR(learning_rate(cosine, 10, 5), 0.5, 1e-15);
    AdapterJob scaled = adapter_with(LrSchedule::constant, 5);
    scaled.learning_rate = 3e-4;
    EXPECT_DOUBLE_EQ(learning_rate(scaled, 10, 0), 3e-4);
}

}  // namespace
}  // namespace loratrain
