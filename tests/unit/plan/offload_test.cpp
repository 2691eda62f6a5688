#include "plan/memory/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/text.h"
#include "config/model_presets.h"
#include "plan/cost/cost_model.h"
#include "plan/text/describe.h"
#include "support/problems.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using test::has;

/// One letter a layer: k, o, r.
std::string letters(const Plan& plan, std::size_t s) {
    std::string text;
    for (const LayerKeeping& layer :
         layer_keeping(only_replica(plan), plan.replicas[0].stages[s])) {
        text += layer.how == Keeping::kept ? 'k' : layer.how == Keeping::offloaded ? 'o' : 'r';
    }
    return text;
}

/// One stage of 8 layers, or two of 4.
struct Eight {
    explicit Eight(int ranks = 1) : test(uniform_case(1, ranks, 20, 10, 8)) {
        test.model = cheap_head_model(8);
        test.job.parallel.microbatch_tokens = 64;
        test.job.parallel.recompute = Recompute::layer;
    }
    Plan plan(std::optional<int> recomputed, int offloaded) {
        test.job.parallel.recomputed_layers = recomputed;
        test.job.parallel.offload = {Offload::Kind::some, offloaded};
        return test.plan();
    }
    Case test;
};

Case on_h200s(Case test, const char* model, std::uint64_t gib) {
    test.model = *model_preset(model);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    test.cluster.bytes_per_rank = gib << 30U;
    return test;
}

}  // namespace

TEST(Offload, LayersLieEvenlyAndTheLastIsOneOfThem) {
    Eight eight;
    EXPECT_EQ(letters(eight.plan({}, 0), 0), "rrrrrrrr");
    EXPECT_EQ(letters(eight.plan({}, 1), 0), "rrrrrrro");
    EXPECT_EQ(letters(eight.plan({}, 2), 0), "rrrorrro");
    EXPECT_EQ(letters(eight.plan({}, 8), 0), "oooooooo");
    EXPECT_EQ(letters(eight.plan({}, 80), 0), "oooooooo");
    EXPECT_EQ(letters(eight.plan(6, 4), 0), "kokororo");
    EXPECT_EQ(letters(eight.plan(3, 3), 0), "kkokkoko");
    EXPECT_EQ(letters(eight.plan(3, 4), 0), "kkokkoko");
    EXPECT_EQ(letters(eight.plan(0, 4), 0), "kkkkkkkk");
    Eight halves(2);
    const Plan two = halves.plan(3, 2);
    EXPECT_EQ(letters(two, 0), "koro");
    EXPECT_EQ(letters(two, 1), "koro");
}

TEST(Offload, EveryKindIsNumberedInOrder) {
    Eight eight;
    const Plan plan = eight.plan(5, 2);
    std::int32_t next[3] = {};
    for (const LayerKeeping& layer :
         layer_keeping(only_replica(plan), plan.replicas[0].stages[0])) {
        EXPECT_EQ(layer.place, next[static_cast<std::size_t>(layer.how)]++);
    }
    EXPECT_EQ(next[0], 3);
    EXPECT_EQ(next[1], 2);
    EXPECT_EQ(next[2], 3);
}

TEST(Offload, MemoryOfDeviceAndHost) {
    Eight eight;
    const Plan none = eight.plan({}, 0);
    const Plan some = eight.plan({}, 5);
    const std::uint64_t layer = layer_slot_bytes(only_replica(none));
    EXPECT_EQ(none.memory[0].host_activations, 0U);
    // Two buffers, which the last two never leave.
    EXPECT_EQ(some.memory[0].total(), none.memory[0].total() + 2 * layer);
    EXPECT_EQ(some.memory[0].host_activations, 3 * offloaded_layer_bytes(only_replica(some)));
    EXPECT_GE(offloaded_layer_bytes(only_replica(some)), layer);
    // Nothing is recomputed any more.
    EXPECT_EQ(eight.plan({}, 8).memory[0].total(), none.memory[0].total() + layer);
    EXPECT_EQ(eight.plan({}, 1).memory[0].total(), none.memory[0].total() + layer);
    EXPECT_EQ(eight.plan({}, 1).memory[0].host_activations, 0U);
    // Of two microbatches in flight all go, each for itself.
    Eight halves(2);
    Plan two = halves.plan({}, 3);
    two.replicas[0].max_in_flight = 2;
    const std::uint64_t block = offloaded_layer_bytes(only_replica(two));
    EXPECT_EQ(offload_host_bytes(only_replica(two), 0), 2 * 3 * block);
    EXPECT_EQ(offload_host_bytes(only_replica(two), 1), block);
}

TEST(Offload, PartsAreThoseThatRowsFill) {
    Eight eight;
    const Plan plan = eight.plan({}, 2);
    const ReplicaView view = only_replica(plan);
    const std::uint64_t whole = layer_slot_bytes(view);
    EXPECT_TRUE(activation_parts(view, 0, 0).empty());
    for (const std::int64_t rows : {1, 7, 64}) {
        std::uint64_t end = 0;
        std::uint64_t bytes = 0;
        for (const ActivationPart& part : activation_parts(view, 0, rows)) {
            EXPECT_GE(part.offset, end);
            end = part.offset + part.bytes;
            bytes += part.bytes;
        }
        EXPECT_LE(end, whole);
        EXPECT_LE(bytes * 64, whole * static_cast<std::uint64_t>(rows));
        if (rows < 64) continue;
        EXPECT_GT(bytes, whole - 12 * tensor_alignment);
    }
}

TEST(Offload, TheHostsMemoryIsChecked) {
    Eight eight;
    const std::uint64_t block = offloaded_layer_bytes(only_replica(eight.plan({}, 5)));
    eight.test.cluster.backend = BackendKind::cuda;
    eight.test.cluster.device = "h200";
    const std::uint64_t on_gpu = eight.plan({}, 5).memory[0].host_activations;
    eight.test.cluster.host_bytes_per_rank = on_gpu;
    EXPECT_EQ(eight.plan({}, 5).replicas[0].stages[0].offloaded_layers, 5);
    eight.test.cluster.host_bytes_per_rank = on_gpu - 1;
    EXPECT_TRUE(has(problems_of(eight.test), "activations of rank 0 take "));
    EXPECT_TRUE(has(problems_of(eight.test), "parallel.offload"));
    eight.test.cluster = {};
    const Plan plan = eight.plan({}, 5);
    eight.test.cluster.bytes_per_rank = plan.memory[0].total() + 3 * block;
    EXPECT_EQ(eight.plan({}, 5).replicas[0].stages[0].offloaded_layers, 5);
    --eight.test.cluster.bytes_per_rank;
    EXPECT_TRUE(has(problems_of(eight.test), "of the host's memory, of which it has "));
}

TEST(Offload, WhatDevicesKeepIsWhatFitsBeside) {
    Eight eight;
    eight.test.job.parallel.recompute = Recompute::automatic;
    eight.test.cluster.backend = BackendKind::cuda;
    eight.test.cluster.device = "h200";
    const Plan all = eight.plan({}, 0);
    ASSERT_EQ(all.replicas[0].recompute, Recompute::none);
    const std::uint64_t layer = layer_slot_bytes(only_replica(all));
    eight.test.cluster.bytes_per_rank = all.memory[0].total() - 3 * layer;
    EXPECT_EQ(letters(eight.plan({}, 0), 0), "kkkkrrrr");
    EXPECT_EQ(letters(eight.plan({}, 3), 0), "kkorroro");
    EXPECT_EQ(letters(eight.plan({}, 6), 0), "kokookoo");
}

/// 8B, samples of 65,536 tokens on one GPU: copies are shorter than computation.
TEST(Offload, AutoOffloadsWhatIsFasterByCosts) {
    Case test = on_h200s(uniform_case(1, 1, 4, 65536, 1), "llama-3.1-8b", 135);
    const auto seconds = [&](const Plan& plan) {
        const ReplicaView view = only_replica(plan);
        const MicrobatchLoad load{65536, AttentionSpan(plan.model).squares(65536), 65535};
        return slowest_seconds(plan.costs, view.replica.stages, load, view.replica.recompute);
    };
    const auto none = test.plan();
    EXPECT_EQ(offloaded_layers(only_replica(none), none.replicas[0].stages[0]), 0);
    EXPECT_EQ(none.costs.offload_per_token, 0.0);
    test.job.parallel.offload.kind = Offload::Kind::automatic;
    const Plan found = test.plan();
    const StagePlan& stage = found.replicas[0].stages[0];
    EXPECT_EQ(found.replicas[0].microbatch_tokens, none.replicas[0].microbatch_tokens);
    EXPECT_GT(stage.offloaded_layers, 8);
    EXPECT_LT(seconds(found), 0.97 * seconds(none));
    EXPECT_LE(found.memory[0].total(), test.cluster.bytes_per_rank);
    EXPECT_GT(found.memory[0].host_activations, std::uint64_t{16} << 30U);
    EXPECT_TRUE(has(described(test), "offloaded   rank 0: "));
    // Less where the host has less, none where that gains too little or nothing is known.
    test.cluster.host_bytes_per_rank = std::uint64_t{40} << 30U;
    const Plan small_host = test.plan();
    EXPECT_LE(small_host.memory[0].host_activations, test.cluster.host_bytes_per_rank);
    EXPECT_LT(offloaded_layers(only_replica(small_host), small_host.replicas[0].stages[0]),
              offloaded_layers(only_replica(found), stage));
    EXPECT_LE(seconds(small_host), seconds(none));
    test.cluster.host_bytes_per_rank = 1;
    EXPECT_LE(test.plan().memory[0].host_activations, 1U);
    test.cluster.host_bytes_per_rank = 0;
    test.cluster.device = "b900";
    EXPECT_EQ(test.plan().replicas[0].stages[0].offloaded_layers, 0);
}

TEST(Offload, AutoLetsReplicasThatShareLayersTakeLargerMicrobatches) {
    Case test = on_h200s(uniform_case(4, 2, 64, 512, 16), "llama-3-70b", 138);
    test.cluster.host_bytes_per_rank = std::uint64_t{120} << 30U;
    test.job.model.precision = Precision::bf16;
    test.cluster.ranks_per_node = 2;
    test.job.model.residency.kind = Residency::Kind::shared;
    test.job.parallel.deployment = {{1, 1, 2, {}}};
    const Plan without = test.plan();
    test.job.parallel.offload.kind = Offload::Kind::automatic;
    const Plan found = test.plan();
    EXPECT_GT(found.replicas[0].microbatch_tokens, without.replicas[0].microbatch_tokens);
    EXPECT_EQ(without.replicas[0].recompute, Recompute::none);
    for (std::size_t r = 0; r < found.replicas.size(); ++r) {
        EXPECT_GT(found.replicas[r].stages[0].offloaded_layers, 0);
        EXPECT_LE(found.memory[r].total(), test.cluster.bytes_per_rank);
        EXPECT_LE(found.memory[r].host_activations, test.cluster.host_bytes_per_rank);
    }
    // None where the host has no room; no other size than the job gives.
    Case given = test;
    given.job.parallel.microbatch_tokens = 2048;
    EXPECT_EQ(given.plan().replicas[0].microbatch_tokens, 2048);
    test.cluster.host_bytes_per_rank = 1;
    EXPECT_LE(test.plan().memory[0].host_activations, 1U);
}

TEST(Offload, AutoIsNoneOnTheCpu) {
    Eight eight;
    eight.test.job.parallel.offload.kind = Offload::Kind::automatic;
    const Plan plan = eight.test.plan();
    EXPECT_EQ(plan.replicas[0].stages[0].offloaded_layers, 0);
    EXPECT_EQ(plan.costs.offload_per_token, 0.0);
}

}  // namespace loratrain::plan_test
