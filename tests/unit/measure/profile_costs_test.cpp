#include "measure/profile_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "measure/profile_host.h"
#include "plan/cost/built_in_costs.h"
#include "plan/cost/cost_model.h"
#include "unit/measure/metered_backend.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

ModelSpec medium_model() {
    ModelSpec model = small_model();
    model.hidden_size = 128;
    model.dense().size = 256;
    model.attention().head_dim = 32;
    model.vocab_size = 2000;
    return model;
}

constexpr StagePlan layers_alone{0, 0, 3, false, false};
constexpr StagePlan first_layers{0, 0, 2, true, false};
constexpr StagePlan head_alone{0, 3, 0, false, true};

class ProfileCosts : public testing::Test {
  protected:
    ProfileCosts() : test_case_(medium_model(), {small_adapter("a", 8), small_adapter("b", 4)}) {
        test_case_.job.parallel.microbatch_tokens = 512;
        test_case_.make_plan_again();
    }
    CostModel profile(double slowness = 1.0) const {
        MeteredBackend backend(slowness);
        return profile_costs(test_case_.job, test_case_.plan, backend).costs;
    }

    SmallCase test_case_;
};

/// One microbatch, every row of which has a target, as a stage trains with it.
struct Training {
    Training(const SmallCase& test_case, const StagePlan& trained,
             const std::vector<std::int32_t>& lengths, double slowness)
        : backend(slowness) {
        SmallCase stage_case = test_case;
        stage_case.plan.replicas[0].stages = {trained};
        const auto stage = stage_case.stage(backend);
        Microbatch microbatch;
        microbatch.segments.push_back({AdapterId{0}, 0, {}});
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            microbatch.segments[0].samples.push_back({static_cast<std::int32_t>(i), lengths[i]});
        }
        microbatch.columns =
            lora_columns(stage_case.job, only_replica(stage_case.plan), microbatch.segments);
        const PackedBatch packed = pack_layout(microbatch);
        const std::vector<std::int32_t> token_ids(
            trained.has_embedding ? packed.positions.size() : 0, 7);
        const std::vector<std::int32_t> targets(packed.positions.size(), 9);
        load = load_of(microbatch, AttentionSpan());
        load.targets = load.tokens;
        const std::int64_t columns = stage_case.plan.model.hidden_size;
        std::vector<float> gradient(targets.size() * static_cast<std::size_t>(columns));
        const TensorView message{gradient.data(), DType::f32, load.tokens, columns, columns};
        forward = seconds([&] {
            stage->forward(
                0, microbatch,
                {token_ids, targets, packed.positions, packed.sample_ids, packed.offsets},
                {{1000}, false});
        });
        if (trained.layer_count == 0) return;
        backward = seconds([&] { stage->backward(0, message, message); });
        step = seconds([&] { stage->step(AdapterId{0}, 1e-4); });
        parameters = static_cast<double>(stage->bank().parameters(AdapterId{0}));
    }

    template <class Work>
    double seconds(const Work& work) const {
        const double before = backend.seconds();
        work();
        return backend.seconds() - before;
    }

    MeteredBackend backend;
    MicrobatchLoad load;
    double forward = 0.0;
    double backward = 0.0;
    double step = 0.0;
    double parameters = 0.0;
};

TEST_F(ProfileCosts, CostsAreThoseOfTraining) {
    // All loads are measured, and after more than two seconds four.
    for (const double slowness : {1.0, 8.0}) {
        SCOPED_TRACE(slowness);
        const CostModel costs = profile(slowness);
        for (const std::vector<std::int32_t>& lengths :
             {std::vector<std::int32_t>{512}, {12, 12, 5}, {1}, {200, 100, 100}}) {
            for (const StagePlan& stage : {first_layers, layers_alone}) {
                const Training training(test_case_, stage, lengths, slowness);
                EXPECT_NEAR(forward_seconds(costs, stage, training.load), training.forward,
                            1e-6 * training.forward);
                // What the first layer saves is counted without adapters.
                EXPECT_NEAR(backward_seconds(costs, stage, training.load, Recompute::none),
                            training.backward,
                            (stage.has_embedding ? 0.01 : 1e-6) * training.backward);
            }
            const Training training(test_case_, layers_alone, lengths, slowness);
            EXPECT_NEAR(
                (costs.step_fixed + costs.step_per_parameter * training.parameters) / training.step,
                1.0, 0.15);
        }
        // Of two or three observations, which leave something to what was known before.
        for (const int tokens : {512, 200}) {
            const Training training(test_case_, head_alone, {tokens}, slowness);
            EXPECT_NEAR(forward_seconds(costs, head_alone, training.load) / training.forward, 1.0,
                        0.05);
        }
    }
}

TEST_F(ProfileCosts, WhatIsVerySlowIsMeasuredOnce) {
    constexpr double slowness = 300.0;
    const CostModel costs = profile(slowness);
    // The first load, in samples of mixed lengths up to the longest, tells what all cost together.
    std::vector<std::int32_t> lengths;
    for (int tokens = 512; tokens > 0; tokens -= lengths.back()) {
        constexpr std::array<std::int32_t, 4> repeated{12, 6, 3, 1};
        lengths.push_back(std::min(repeated[lengths.size() % 4], tokens));
    }
    const Training training(test_case_, layers_alone, lengths, slowness);
    EXPECT_NEAR(forward_seconds(costs, layers_alone, training.load) / training.forward, 1.0, 0.01);
    EXPECT_NEAR(
        backward_seconds(costs, layers_alone, training.load, Recompute::none) / training.backward,
        1.0, 0.01);
}

TEST_F(ProfileCosts, ProbeIsOfTheLargestLoad) {
    MeteredBackend backend;
    const double probed = probe_seconds(test_case_.job, test_case_.plan, backend);
    EXPECT_GT(probed, 0.0);
    EXPECT_NEAR(profile_costs(test_case_.job, test_case_.plan, backend).probe_seconds, probed,
                1e-9 * probed);
}

TEST_F(ProfileCosts, AdaptersOfPairsAreMeasuredToo) {
    test_case_.job.adapters[0].loss.loss = Loss::dpo;
    EXPECT_GT(profile().head.seconds(512, 0), 0.0);
}

/// Looks like a GPU, whose host is timed too.
class DeviceLike final : public CpuBackend {
  public:
    DeviceLike() : CpuBackend(1) {}
    void* native_stream() const override { return const_cast<DeviceLike*>(this); }
};

TEST_F(ProfileCosts, TheHostOfADeviceIsTimed) {
    DeviceLike backend;
    const CostModel costs = profile_costs(test_case_.job, test_case_.plan, backend, {}, 1e9).costs;
    EXPECT_GT(costs.host.layer_forward.seconds(2.0), 0.0);
    EXPECT_GT(costs.host.layer_backward.seconds(2.0), 0.0);
    EXPECT_GT(costs.host.forward.seconds(2.0), 0.0);
    EXPECT_GT(costs.layer_forward.seconds(512, 0), 0.0);
    EXPECT_EQ(costs.host.new_rows.met, 1);  // of a small model one size
    EXPECT_GE(costs.host.new_targets.met, 1);
    EXPECT_EQ(profile().host.forward.seconds(2.0), 0.0);  // the host computes
}

TEST_F(ProfileCosts, ShapesOfTheStartAreRunBeforeIt) {
    DeviceLike backend;
    const std::int64_t width = test_case_.plan.replicas[0].pad_columns;
    const std::vector<StartShape> shapes{
        {300, width, 100}, {70, 0, 0}, {301, width, 300}, {513, 0, 0}, {64, 0, 0}};
    const auto prepared = [&](std::size_t count) {
        return profile_costs(test_case_.job, test_case_.plan, backend, {shapes.data(), count}, 1e9)
            .prepared;
    };
    EXPECT_GT(width, 0);
    EXPECT_EQ(prepared(0), 0U);
    EXPECT_EQ(prepared(3), 3U);
    EXPECT_EQ(prepared(5), 3U);  // the fourth has more rows than a microbatch
}

TEST_F(ProfileCosts, ShapesOfTheStartAreRunWithoutAProfileToo) {
    DeviceLike backend;
    const std::vector<StartShape> shapes{{300, 0, 100}, {300, 0, 300}, {70, 0, 0}, {513, 0, 0}};
    const auto prepared = [&](std::size_t count) {
        return prepare_shapes(test_case_.job, test_case_.plan, backend, {shapes.data(), count});
    };
    EXPECT_EQ(prepared(0), 0U);
    EXPECT_EQ(prepared(3), 3U);
    EXPECT_EQ(prepared(4), 3U);
    CpuBackend processor(1);
    EXPECT_EQ(prepare_shapes(test_case_.job, test_case_.plan, processor, shapes), 0U);
}

TEST_F(ProfileCosts, WhatASmallModelHasNoTimeForStaysBuiltIn) {
    DeviceLike backend;
    test_case_.plan.costs.host = built_in_costs(medium_model(), DType::bf16, "h200").host;
    const CostModel& built_in = test_case_.plan.costs;
    const CostModel costs = profile_costs(test_case_.job, test_case_.plan, backend, {}, 0.0).costs;
    EXPECT_NE(costs.layer_forward.per_token, built_in.layer_forward.per_token);
    EXPECT_EQ(costs.head.per_token, built_in.head.per_token);
    EXPECT_EQ(costs.head.fixed, built_in.head.fixed);
    EXPECT_EQ(costs.host.head, built_in.host.head);
    EXPECT_DOUBLE_EQ(costs.host.forward.seconds(2.0), built_in.host.forward.seconds(2.0));
    EXPECT_EQ(costs.host.new_rows.met, 1);
    EXPECT_EQ(costs.host.new_targets.met, 0);
}

TEST(HostCosts, AreDifferencesOfStages) {
    HostTimes times;
    times.layers = 2;
    times.segments = 5.0;
    times.without_layers = {QueueTimes{10.0, 4.0}, QueueTimes{14.0, 4.0}};
    times.with_layers = {42.0, 60.0};
    times.head = 20.0;
    const HostCosts host = host_costs(times);
    EXPECT_DOUBLE_EQ(host.forward.fixed, 9.0);
    EXPECT_DOUBLE_EQ(host.forward.per_segment, 1.0);
    EXPECT_DOUBLE_EQ(host.backward.fixed, 4.0);
    EXPECT_GT(host.layer_forward.per_segment, 0.0);
    EXPECT_DOUBLE_EQ(host.layer_forward.seconds(5.0), 14.0);
    EXPECT_DOUBLE_EQ(host.layer_backward.seconds(5.0), 28.0);
    EXPECT_DOUBLE_EQ(host.head, 6.0);
}

TEST(HostCosts, NoTermIsNegative) {
    HostTimes times;
    times.segments = 1.0;
    times.without_layers = {QueueTimes{10.0, 4.0}, QueueTimes{10.0, 4.0}};
    times.with_layers = {8.0, 3.0};
    const HostCosts host = host_costs(times);
    EXPECT_EQ(host.layer_forward.seconds(3.0), 0.0);
    EXPECT_EQ(host.layer_backward.seconds(3.0), 0.0);
    EXPECT_EQ(host.head, 0.0);
}

TEST_F(ProfileCosts, ALaneIsMeasuredAlone) {
    const CostModel whole = profile();
    test_case_.cluster.ranks = 2;
    test_case_.job.parallel.deployment = {{2, 1, 1, 512}};
    test_case_.make_plan_again();
    test_case_.plan.device = "cpu";
    const CostLine sums = lane_sums(medium_model(), test_case_.plan.compute, lane_link("cpu"), 2);
    const CostModel lane = profile();
    EXPECT_GT(sums.per_token, 0.0);
    EXPECT_NEAR(lane.layer_backward.per_square, whole.layer_backward.per_square,
                1e-6 * whole.layer_backward.per_square);  // the meter does not look at heads
    const double share =
        (lane.layer_backward.per_token - sums.per_token) / whole.layer_backward.per_token;
    EXPECT_GT(share, 0.5);  // of LoRA's A and B a lane has more than a half
    EXPECT_LT(share, 0.65);
    EXPECT_NEAR(lane.head.per_token / whole.head.per_token, 0.5, 0.02);
}

TEST_F(ProfileCosts, NameTheBackend) {
    MeteredBackend backend;
    const CostModel costs = profile_costs(test_case_.job, test_case_.plan, backend).costs;
    EXPECT_EQ(costs.source, "measured on " + backend.description());
    EXPECT_GT(costs.layer_forward.seconds(512, 0), 0.0);
}

TEST_F(ProfileCosts, TransfersAreTimedWhereLayersStream) {
    const auto backend = make_backend("cpu", {1, 0});
    const auto transfer = [&](std::int32_t resident) {
        test_case_.plan.replicas[0].stages[0].resident_layers = resident;
        return profile_costs(test_case_.job, test_case_.plan, *backend).costs.layer_transfer;
    };
    EXPECT_GT(transfer(0), 0.0);
    EXPECT_EQ(transfer(all_layers), 0.0);
}

TEST_F(ProfileCosts, NothingStaysAllocated) {
    MeteredBackend backend;
    profile_costs(test_case_.job, test_case_.plan, backend);
    const std::size_t before = backend.memory().current;
    profile_costs(test_case_.job, test_case_.plan, backend);
    EXPECT_EQ(backend.memory().current, before);
}

TEST_F(ProfileCosts, NeedsNoFilesOfTheJob) {
    test_case_.job.adapters[0].init_from = "/nowhere";
    EXPECT_GT(profile().layer_forward.seconds(100, 1e4), 0.0);
}

}  // namespace
}  // namespace loratrain::test
