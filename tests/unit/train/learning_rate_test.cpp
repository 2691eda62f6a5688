#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "plan/rungs.h"

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

using Kwargs = LrSchedulerKwargs;

/// What transformers 5.23's get_scheduler gives for lr = 2e-3 and 20 steps.
struct OfTransformers {
    LrSchedule type;
    int warmup;
    std::vector<std::pair<std::optional<double> Kwargs::*, double>> numbers;
    LrRamp warmup_type;
    LrRamp decay_type;
    std::array<double, 11> rates;  ///< at these steps:
};
constexpr std::array steps_looked_at{0, 1, 3, 4, 7, 10, 13, 16, 19, 20, 22};
const std::vector<OfTransformers> of_transformers{
    {LrSchedule::cosine,
     4,
     {{&Kwargs::num_cycles, 1.5}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.0008049096779838719, 7.612046748871316e-05,
       0.0015555702330196017, 0.0017071067811865476, 0.00016853038769745488, 0.0,
       0.0006173165676349095}}},
    {LrSchedule::cosine_with_restarts,
     4,
     {},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.0018314696123025453, 0.00138268343236509,
       0.0008049096779838719, 0.00029289321881345256, 1.921471959676957e-05, 0.0, 0.0}}},
    {LrSchedule::cosine_with_restarts,
     0,
     {{&Kwargs::num_cycles, 3.0}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.002, 0.0018910065241883678, 0.0011564344650402312, 0.0006909830056250524,
       0.0019876883405951376, 0.001, 1.231165940486223e-05, 0.0013090169943749464,
       0.00010899347581163277, 0.0, 0.0}}},
    {LrSchedule::cosine_with_min_lr,
     4,
     {{&Kwargs::min_lr, 0.0005}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.001873602209226909, 0.0015370125742738174,
       0.0011036822584879038, 0.0007196699141100894, 0.0005144110396975771, 0.0005,
       0.0005570903506165349}}},
    {LrSchedule::cosine_with_min_lr,
     0,
     {{&Kwargs::num_cycles, 1.0}, {&Kwargs::min_lr_rate, 0.1}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.002, 0.0019559508646656383, 0.001629006727063226, 0.0013781152949374528,
       0.0005709932729367744, 0.0002, 0.0005709932729367742, 0.0013781152949374526,
       0.0019559508646656383, 0.002, 0.0018281152949374524}}},
    {LrSchedule::polynomial,
     4,
     {},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.0016250187500000002, 0.0012500375000000002, 0.00087505625,
       0.000500075, 0.00012509375000000002, 1e-07, 1e-07}}},
    {LrSchedule::polynomial,
     0,
     {{&Kwargs::lr_end, 0.0001}, {&Kwargs::power, 2.0}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.002, 0.00181475, 0.0014727499999999999, 0.0013160000000000003, 0.0009027500000000001,
       0.000575, 0.00033275, 0.00017599999999999997, 0.00010475000000000001, 0.0001, 0.0001}}},
    {LrSchedule::inverse_sqrt,
     4,
     {},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.0015118578920369089, 0.0012649110640673518,
       0.0011094003924504584, 0.001, 0.000917662935482247, 0.0008944271909999159,
       0.0008528028654224417}}},
    {LrSchedule::inverse_sqrt,
     0,
     {},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.002, 0.0019999000074993755, 0.0019997000674831294, 0.0019996001199600144,
       0.0019993003672857564, 0.0019990007493755463, 0.001998701266128435, 0.0019984019174435785,
       0.0019981027032202397, 0.0019980029950087343, 0.0019978036233577853}}},
    {LrSchedule::inverse_sqrt,
     4,
     {{&Kwargs::timescale, 9.0}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.0017320508075688774, 0.0015491933384829668,
       0.001414213562373095, 0.001309307341415954, 0.001224744871391589, 0.0012,
       0.0011547005383792518}}},
    {LrSchedule::warmup_stable_decay,
     4,
     {{&Kwargs::num_decay_steps, 6.0}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.0, 0.0005, 0.0015, 0.002, 0.002, 0.002, 0.002, 0.0015, 0.0001339745962155613, 0.0, 0.0}}},
    {LrSchedule::warmup_stable_decay,
     4,
     {{&Kwargs::num_decay_steps, 6.0},
      {&Kwargs::num_stable_steps, 5.0},
      {&Kwargs::min_lr_ratio, 0.1}},
     LrRamp::cosine,
     LrRamp::linear,
     {{0.0002, 0.0004636038969321072, 0.0017363961030678928, 0.002, 0.002, 0.0017, 0.0008, 0.0002,
       0.0002, 0.0002, 0.0002}}},
    {LrSchedule::warmup_stable_decay,
     3,
     {{&Kwargs::num_decay_steps, 8.0}, {&Kwargs::min_lr_ratio, 0.25}},
     LrRamp::one_minus_sqrt,
     LrRamp::one_minus_sqrt,
     {{0.0005, 0.000775255128608411, 0.002, 0.002, 0.002, 0.002, 0.0014696699141100895,
       0.0009393398282201786, 0.0005968784799597719, 0.0005, 0.0005}}},
    {LrSchedule::warmup_stable_decay,
     0,
     {{&Kwargs::num_cycles, 1.0}, {&Kwargs::num_decay_steps, 10.0}},
     LrRamp::linear,
     LrRamp::cosine,
     {{0.002, 0.002, 0.002, 0.002, 0.002, 0.002, 0.0006909830056250527, 0.00019098300562505244,
       0.0018090169943749475, 0.0, 0.0}}},
};

TEST(LearningRate, SchedulesWithKwargsEqualTransformers) {
    for (const OfTransformers& expected : of_transformers) {
        AdapterJob adapter = adapter_with(expected.type, expected.warmup);
        adapter.learning_rate = 2e-3;
        Kwargs& kwargs = adapter.lr_scheduler_kwargs;
        for (const auto& [number, value] : expected.numbers) kwargs.*number = value;
        kwargs.warmup_type = expected.warmup_type;
        kwargs.decay_type = expected.decay_type;
        for (std::size_t i = 0; i < steps_looked_at.size(); ++i) {
            EXPECT_NEAR(learning_rate(adapter, 20, steps_looked_at[i]), expected.rates[i], 1e-17)
                << static_cast<int>(expected.type) << " step " << steps_looked_at[i];
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
