#include "plan/memory/fit_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <regex>

#include "base/text.h"
#include "config/model_presets.h"
#include "plan/cost/device.h"
#include "plan/deployments/worker_shape.h"
#include "plan/memory/engine_memory.h"
#include "plan/text/describe.h"
#include "support/problems.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using test::has;

/// Adapters on samples of 10 and, one of them, 100 tokens: 2048 tokens a microbatch where memory
/// allows. `ranks` stages of six layers.
Case deep_case(int ranks, int adapters = 4) {
    Case test = uniform_case(adapters, ranks, 800, 10, 600);
    test.model = cheap_head_model(std::int64_t{6} * ranks);
    test.datasets[0].train[3].tokens = 100;
    return test;
}

/// What the largest rank needs.
std::uint64_t bytes_needed(const Case& test, std::int64_t tokens, Recompute recompute) {
    Case given = test;
    given.cluster.bytes_per_rank = 0;
    given.job.parallel.microbatch_tokens = tokens;
    given.job.parallel.recompute = recompute;
    std::uint64_t most = 0;
    for (const MemoryPlan& memory : given.plan().memory) most = std::max(most, memory.total());
    return most;
}

/// What the largest of three ranks needs, with whatever split of the layers that is least.
std::uint64_t smallest_bytes(const Case& test, Recompute recompute) {
    Case given = test;
    given.job.parallel.recompute = recompute;
    Plan plan = given.plan();
    std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
    const auto layers = static_cast<std::int32_t>(test.model.layers);
    for (std::int32_t first = 1; first < layers - 1; ++first) {
        for (std::int32_t second = 1; first + second < layers; ++second) {
            const std::array counts{first, second, layers - first - second};
            std::uint64_t most = 0;
            for (std::size_t s = 0; s < counts.size(); ++s) {
                plan.replicas[0].stages[s].layer_count = counts[s];
                most = std::max(most, stage_memory(given.job, only_replica(plan), s).total());
            }
            smallest = std::min(smallest, most);
        }
    }
    return smallest;
}

struct Wanted {
    std::int64_t tokens = 0;
    Recompute recompute = Recompute::none;
};

void expect_choice(Case& test, std::uint64_t bytes, const Wanted& wanted) {
    test.cluster.bytes_per_rank = bytes;
    const Plan plan = test.plan();
    EXPECT_EQ(plan.replicas[0].microbatch_tokens, wanted.tokens);
    EXPECT_EQ(plan.replicas[0].recompute, wanted.recompute);
    for (const MemoryPlan& memory : plan.memory) EXPECT_LE(memory.total(), bytes);
}

/// Four adapters with a head too large for the split that costs least, and memory for all of them
/// with another split and microbatches of so many tokens.
Case large_head_case(std::int64_t tokens) {
    Case test = deep_case(3);
    test.job.schedule.policy = SchedulePolicy::mlora;
    test.job.parallel.recompute = Recompute::none;
    test.model.vocab_size = 10000;
    test.job.parallel.microbatch_tokens = tokens;
    test.cluster.bytes_per_rank = smallest_bytes(test, Recompute::none);
    return test;
}

}  // namespace

TEST(FitMemory, RecomputationKeepsOnlyBoundaries) {
    const Case test = deep_case(1);
    Plan plan = test.plan();
    const StagePlan& stage = plan.replicas[0].stages[0];
    const std::uint64_t kept = slot_bytes(only_replica(plan), stage);
    plan.replicas[0].recompute = Recompute::layer;
    EXPECT_EQ(kept - slot_bytes(only_replica(plan), stage),
              6 * layer_slot_bytes(only_replica(plan)));
    EXPECT_EQ(workspace_layout(only_replica(plan), stage).layer,
              layer_slot_bytes(only_replica(plan)));
}

TEST(FitMemory, AutomaticDoesNotRecomputeWhereAllFits) {
    for (const int ranks : {1, 3}) {
        Case test = deep_case(ranks);
        expect_choice(test, bytes_needed(test, 2048, Recompute::none), {2048, Recompute::none});
    }
}

TEST(FitMemory, AutomaticTakesSmallerMicrobatchesFirst) {
    for (const int ranks : {1, 3}) {
        Case test = deep_case(ranks);
        const std::uint64_t bytes = bytes_needed(test, 2048, Recompute::none) - 1;
        test.cluster.bytes_per_rank = bytes;
        const std::int64_t fitting = test.report().fitting.none;
        EXPECT_LT(fitting, 2048);
        EXPECT_GT(fitting, 1920);
        expect_choice(test, bytes, {1920, Recompute::none});
        expect_choice(test, bytes_needed(test, 256, Recompute::none), {256, Recompute::none});
    }
}

TEST(FitMemory, AutomaticRecomputesBeforeMicrobatchesGetTooSmall) {
    for (const int ranks : {1, 3}) {
        Case test = deep_case(ranks);
        const std::uint64_t bytes = bytes_needed(test, 256, Recompute::none) - 1;
        test.cluster.bytes_per_rank = bytes;
        const FittingTokens fitting = test.report().fitting;
        EXPECT_LE(fitting.none, 255);
        EXPECT_GT(fitting.layer, 255);
        // Smaller ones than fit, beside which some layers need not be recomputed.
        expect_choice(test, bytes, {ranks > 1 ? 512 : 256, Recompute::layer});
        EXPECT_GE(test.plan().replicas[0].stages[0].kept_layers, ranks > 1 ? 1 : 3);
    }
}

TEST(FitMemory, LayersMoveWhereTheCheapestSplitDoesNotFit) {
    int moved = 0;
    for (const std::int64_t vocabulary : {8, 3000, 6000, 20000}) {
        Case test = deep_case(3, 1);
        test.job.schedule.policy = SchedulePolicy::one_f_one_b;
        test.model.vocab_size = vocabulary;
        test.job.parallel.microbatch_tokens = 100;
        const std::vector<StagePlan> cheapest = test.plan().replicas[0].stages;
        test.cluster.bytes_per_rank =
            std::min(smallest_bytes(test, Recompute::none), smallest_bytes(test, Recompute::layer));
        const Plan plan = test.plan();
        std::int32_t next = 0;
        for (std::size_t s = 0; s < plan.replicas[0].stages.size(); ++s) {
            EXPECT_LE(plan.memory[s].total(), test.cluster.bytes_per_rank);
            EXPECT_EQ(plan.replicas[0].stages[s].first_layer, next);
            next += plan.replicas[0].stages[s].layer_count;
            moved += std::abs(plan.replicas[0].stages[s].layer_count - cheapest[s].layer_count);
        }
        EXPECT_EQ(next, test.model.layers);
        --test.cluster.bytes_per_rank;
        EXPECT_TRUE(has(problems_of(test), "too little"));
    }
    EXPECT_GT(moved, 0);
}

TEST(FitMemory, AsManyAdaptersAsFitWhereLayersMove) {
    Case test = large_head_case(400);
    const Plan plan = test.plan();
    EXPECT_EQ(plan.first_admitted.size(), 4U);
    test.cluster.bytes_per_rank = 0;
    Plan cheapest = test.plan();
    cheapest.first_admitted.resize(1);
    cheapest.bytes_per_rank = plan.bytes_per_rank;
    EXPECT_FALSE(fits_memory(test.job, only_replica(cheapest), 400, Recompute::none));
}

TEST(FitMemory, ARunThatIsContinuedKeepsItsSizesWhereLayersMoved) {
    Case test = large_head_case(400);
    const Plan former = test.plan();
    test.job.parallel.microbatch_tokens.reset();
    EXPECT_NE(test.plan().replicas[0].microbatch_tokens, 400);
    const Plan plan = make_plan(test.job, test.model, test.datasets, test.cluster, &former);
    EXPECT_EQ(plan.replicas[0].microbatch_tokens, 400);
    EXPECT_EQ(plan.first_admitted.size(), 4U);
    for (std::size_t s = 0; s < former.replicas[0].stages.size(); ++s) {
        EXPECT_EQ(plan.replicas[0].stages[s].layer_count, former.replicas[0].stages[s].layer_count);
    }
}

TEST(FitMemory, NeverLessThanTheLongestSample) {
    Case test = deep_case(1, 1);
    const std::uint64_t bytes = bytes_needed(test, 100, Recompute::layer);
    expect_choice(test, bytes, {100, Recompute::layer});
    test.cluster.bytes_per_rank = bytes - 1;
    EXPECT_NE(problems_of(test), "");
    test.datasets[0].train[3].tokens = 99;
    EXPECT_EQ(problems_of(test), "");
    test.datasets[0].eval = equal_samples(2, 100);
    EXPECT_NE(problems_of(test), "");
}

TEST(FitMemory, TheFittingTokensAreTheLargest) {
    for (const Recompute recompute : {Recompute::none, Recompute::layer}) {
        Case test = deep_case(2);
        test.job.parallel.recompute = recompute;
        test.cluster.bytes_per_rank = bytes_needed(test, 777, recompute);
        const PlannedJob planned = test.planned();
        const FittingTokens& both = planned.report.fitting;
        const std::int64_t fitting = recompute == Recompute::layer ? both.layer : both.none;
        EXPECT_GE(fitting, 777);  // tensors are rounded up to whole lines
        EXPECT_EQ(planned.plan.replicas[0].microbatch_tokens, 768);
        EXPECT_LE(bytes_needed(test, fitting, recompute), test.cluster.bytes_per_rank);
        EXPECT_GT(bytes_needed(test, fitting + 1, recompute), test.cluster.bytes_per_rank);
    }
}

TEST(FitMemory, GivenTokensAreKept) {
    Case test = deep_case(1, 1);
    test.job.parallel.microbatch_tokens = 1500;
    expect_choice(test, bytes_needed(test, 1500, Recompute::none), {1500, Recompute::none});
    expect_choice(test, bytes_needed(test, 1500, Recompute::none) - 1, {1500, Recompute::layer});
    expect_choice(test, bytes_needed(test, 1500, Recompute::layer), {1500, Recompute::layer});
    test.cluster.bytes_per_rank = bytes_needed(test, 1500, Recompute::layer) - 1;
    // Of more stages each would have more of them at the same time: none is named.
    EXPECT_TRUE(has(problems_of(test), "(microbatch_tokens: 1499 would fit (now 1500))"));
}

TEST(FitMemory, GivenRecomputationIsKept) {
    Case test = deep_case(1);
    test.job.parallel.recompute = Recompute::layer;
    expect_choice(test, std::uint64_t{1} << 40U, {2048, Recompute::layer});
    EXPECT_EQ(test.report().fitting.none, most_fitting_tokens);
    test.job.parallel.recompute = Recompute::none;
    const std::uint64_t bytes = bytes_needed(test, 120, Recompute::none);
    test.cluster.bytes_per_rank = bytes;
    EXPECT_GE(test.report().fitting.none, 120);
    expect_choice(test, bytes, {100, Recompute::none});  // no whole 128s: the longest sample
}

TEST(FitMemory, UnknownMemoryIsNotChecked) {
    const auto [plan, report] = deep_case(1).planned();
    EXPECT_EQ(plan.replicas[0].microbatch_tokens, 2048);
    EXPECT_EQ(plan.replicas[0].recompute, Recompute::none);
    EXPECT_EQ(report.fitting.layer, 0);
}

TEST(FitMemory, OneLayerOfOneMicrobatchGainsNothing) {
    Case test = uniform_case(1, 1, 200, 16, 200);
    ASSERT_EQ(test.model.layers, 1);
    const std::uint64_t bytes = bytes_needed(test, 128, Recompute::none);
    expect_choice(test, bytes, {128, Recompute::none});
    EXPECT_EQ(test.report().fitting.none, test.report().fitting.layer);
}

TEST(FitMemory, RefusalNamesWhatIsMissing) {
    Case test = uniform_case(1, 2, 64, 16, 64);
    test.job.parallel = {std::nullopt, 1024, Recompute::none, {}};
    const Plan plan = test.plan();
    const std::uint64_t needed = std::max(plan.memory[0].total(), plan.memory[1].total());
    test.cluster.bytes_per_rank = needed;
    EXPECT_EQ(problems_of(test), "");
    test.cluster.bytes_per_rank = needed - 1;
    const std::string found = problems_of(test);
    EXPECT_TRUE(has(found, cat("rank 0 needs ", human_bytes(needed)))) << found;
    EXPECT_TRUE(has(found, cat("but has ", human_bytes(needed - 1), ", 1 B too little"))) << found;
    EXPECT_TRUE(has(found, "would fit (now 1024); recompute: layer would fit)")) << found;
    test.cluster.bytes_per_rank = 1000;
    EXPECT_TRUE(has(problems_of(test), "rank 1 needs"));
    EXPECT_TRUE(has(problems_of(test),
                    "no microbatch_tokens fits, not even the 16 of the longest"
                    " sample with recompute: layer"));
}

/// A sample of 4000 tokens that has no room: what is named does, and of tokens not one more.
TEST(FitMemory, RefusalOfTheLongestSampleNamesWhatTakesIt) {
    Case test = deep_case(1, 1);
    test.model.vocab_size = 64;  // rows for lanes
    const auto with_longest = [&](std::int32_t tokens) {
        test.datasets[0].train[3] = {tokens, tokens - 1};
    };
    with_longest(4000);
    const std::uint64_t all = bytes_needed(test, 4000, Recompute::layer);
    test.cluster.bytes_per_rank = all - all / 50;
    const std::string found = problems_of(test);
    std::smatch words;
    ASSERT_TRUE(std::regex_search(
        found, words,
        std::regex(
            "not even the 4000 of the longest sample with recompute: layer, but ([0-9]+) "
            "would: lower max_seq_len, with over_length: truncate or drop; "
            "so would parallel.deployment: (\\[\\{tp: ([0-9]), pp: ([0-9])\\}\\]) on ([0-9]) "
            "ranks, for up to ([0-9]+) tokens")))
        << found;
    const int most = std::stoi(words[1]);
    EXPECT_GT(most, 2000);
    with_longest(most);
    EXPECT_EQ(problems_of(test), "");
    with_longest(most + 1);
    EXPECT_TRUE(has(problems_of(test), cat("not even the ", most + 1)));

    with_longest(4000);
    const ReplicaJob lanes{std::stoi(words[3]), std::stoi(words[4]), 1, {}};
    EXPECT_EQ(lanes.tensor, 2);
    EXPECT_GE(std::stoi(words[6]), 4000);
    test.job.parallel.deployment = {lanes};
    test.cluster.ranks = test.cluster.ranks_per_node = std::stoi(words[5]);
    EXPECT_EQ(problems_of(test), "");
    with_longest(std::stoi(words[6]));
    EXPECT_EQ(problems_of(test), "");

    test.job.parallel = {};
    test.job.parallel.microbatch_tokens = 5000;
    test.cluster.ranks = 1;
    with_longest(4000);
    EXPECT_TRUE(has(problems_of(test), "would: lower microbatch_tokens and max_seq_len"));
}

/// What a refusal of 8B with a sample of 163,840 tokens on one H100 names, it takes.
TEST(FitMemory, WhatRefusalsOfALongSampleNameFits) {
    for (const Recompute recompute : {Recompute::automatic, Recompute::none, Recompute::layer}) {
        Case test = uniform_case(1, 1, 4, 163840, 1);
        test.model = *model_preset("llama-3.1-8b");
        test.cluster.backend = BackendKind::cuda;
        test.cluster.device = "h100";
        test.cluster.bytes_per_rank = find_device("h100")->bytes - nccl_bytes;
        test.job.parallel = {};
        test.job.parallel.recompute = recompute;
        const std::string found = problems_of(test);
        std::smatch words;
        ASSERT_TRUE(std::regex_search(
            found, words,
            std::regex("but ([0-9]+) would: .*; so would parallel.deployment: \\[\\{tp: 2, pp: "
                       "1\\}\\] on 2 ranks, for up to ([0-9]+) tokens(; each with recompute: "
                       "auto)?\\)")))
            << found;
        EXPECT_EQ(words[3].matched, recompute == Recompute::none);
        if (recompute == Recompute::none) test.job.parallel.recompute = Recompute::automatic;
        test.job.model.residency.kind = Residency::Kind::all;
        const auto fits = [&](std::int32_t tokens) {
            test.datasets[0].train = equal_samples(4, tokens);
            return problems_of(test).empty();
        };
        EXPECT_TRUE(fits(std::stoi(words[1])));
        EXPECT_FALSE(fits(std::stoi(words[1]) + 1));
        test.job.parallel.deployment = {{2, 1, 1, {}}};
        test.cluster.ranks = test.cluster.ranks_per_node = 2;
        test.cluster.bytes_per_rank -= nccl_bytes;
        EXPECT_TRUE(fits(std::stoi(words[2])));
        EXPECT_FALSE(fits(std::stoi(words[2]) + 1));
    }
}

/// 8B and a sample of 65,536 tokens, beside which not all layers stay.
TEST(FitMemory, RefusalOfTheLongestSampleNamesStreaming) {
    Case test = uniform_case(1, 1, 4, 65536, 1);
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    test.job.model.residency.kind = Residency::Kind::all;
    test.job.parallel.recompute = Recompute::layer;
    const std::uint64_t needed = bytes_needed(test, 65536, Recompute::layer);
    const std::uint64_t weights = test.plan().memory[0].weights;
    const char* streaming = "; model.residency: stream would fit, with the layers in host memory";
    test.cluster.bytes_per_rank = needed - weights / 2;
    const std::string found = problems_of(test);
    EXPECT_TRUE(has(found, "not even the 65536 of the longest sample with recompute: layer"));
    EXPECT_TRUE(has(found, streaming)) << found;
    Case streamed = test;
    streamed.job.model.residency.kind = Residency::Kind::stream;
    EXPECT_EQ(problems_of(streamed), "");
    streamed.job.model.residency.kind = Residency::Kind::automatic;
    EXPECT_EQ(problems_of(streamed), "");
    test.job.parallel.offload.kind = Offload::Kind::automatic;
    EXPECT_TRUE(has(problems_of(test), "; model.residency: stream with offload: none would fit"));
    test.job.parallel.offload = {};

    test.cluster.host_bytes_per_rank = weights / 4;  // which has no room for the layers
    EXPECT_FALSE(has(problems_of(test), streaming)) << problems_of(test);
    test.cluster.host_bytes_per_rank = 0;
    test.cluster.bytes_per_rank = needed - 2 * weights;  // of which streaming frees too little
    EXPECT_TRUE(has(problems_of(test), "not even the 65536")) << problems_of(test);
    EXPECT_FALSE(has(problems_of(test), streaming)) << problems_of(test);
}

TEST(FitMemory, TheNumberOfStagesThatRefusalNamesIsTheSmallest) {
    int named = 0;
    const int step = 96 / random_cases(96);
    for (const auto recompute : {Recompute::automatic, Recompute::none, Recompute::layer}) {
        for (int part = 4; part < 100; part += step) {
            Case test = deep_case(1, 2);
            test.job.parallel.recompute = recompute;
            test.cluster.bytes_per_rank =
                bytes_needed(test, 2048, Recompute::none) * static_cast<std::uint64_t>(part) / 400;
            const std::string found = problems_of(test);
            std::smatch number;
            if (!std::regex_search(found, number, std::regex("smaller, ([0-9]+) would fit"))) {
                continue;
            }
            const int enough = std::stoi(number[1]);
            if (has(found, "each with recompute: auto")) {
                test.job.parallel.recompute = Recompute::automatic;
            }
            test.cluster.ranks = enough;
            EXPECT_EQ(problems_of(test), "") << enough << " stages, " << part;
            test.cluster.ranks = enough - 1;
            EXPECT_NE(problems_of(test), "") << enough << " stages, " << part;
            ++named;
        }
    }
    EXPECT_GT(named, 2);
}

/// Rows of tokens of a tied head have no pipeline.
TEST(FitMemory, RefusalNamesStagesThatAdaptersCanTrainOn) {
    Case test = deep_case(1, 1);
    test.job.adapters.front().trainable_token_indices = {1};
    const auto refused = [&] {
        test.cluster.bytes_per_rank = bytes_needed(test, 100, Recompute::layer) - 1;
        return problems_of(test);
    };
    EXPECT_TRUE(has(refused(), "pipeline stages (ranks) make each stage smaller"));
    test.model.tie_word_embeddings = true;
    EXPECT_NE(refused(), "");
    EXPECT_EQ(refused().find("pipeline stages"), std::string::npos) << refused();
}

TEST(FitMemory, RefusalNamesRecomputation) {
    Case test = deep_case(1, 1);
    test.job.parallel.recompute = Recompute::none;
    test.cluster.bytes_per_rank = bytes_needed(test, 100, Recompute::none) - 1;
    EXPECT_TRUE(has(problems_of(test), "(recompute: layer would fit"));
    test.job.parallel.microbatch_tokens = 200;
    EXPECT_TRUE(has(problems_of(test), "(recompute: layer would fit"));
    test.job.parallel.microbatch_tokens = 200000;
    const std::string found = problems_of(test);
    EXPECT_TRUE(has(found, "(recompute: layer with microbatch_tokens: ")) << found;
}

TEST(FitMemory, TheSuggestedMicrobatchFits) {
    for (const Recompute recompute : {Recompute::none, Recompute::automatic}) {
        Case test = uniform_case(1, 2, 64, 16, 64);
        test.job.parallel = {std::nullopt, 1024, recompute, {}};
        test.cluster.bytes_per_rank = test.plan().memory[0].total() / 2;
        const std::string found = problems_of(test);
        const std::string words = "(microbatch_tokens: ";
        const auto at = found.find(words);
        ASSERT_NE(at, std::string::npos) << found;
        test.job.parallel.microbatch_tokens = std::stoll(found.substr(at + words.size()));
        EXPECT_EQ(problems_of(test), "");
        ++*test.job.parallel.microbatch_tokens;
        EXPECT_NE(problems_of(test), "");
    }
}

TEST(FitMemory, AsFewLayersAreRecomputedAsMemoryAsks) {
    Case test = deep_case(1);
    test.job.parallel.microbatch_tokens = 1024;
    const std::uint64_t none = bytes_needed(test, 1024, Recompute::none);
    const std::uint64_t layer = bytes_needed(test, 1024, Recompute::layer);
    std::int32_t fewest = 6;
    for (const double share : {0.0, 0.3, 0.6, 0.99}) {
        test.cluster.bytes_per_rank =
            layer + static_cast<std::uint64_t>(share * static_cast<double>(none - layer));
        const Plan plan = test.plan();
        ASSERT_EQ(plan.replicas[0].recompute, Recompute::layer);
        EXPECT_LE(plan.memory[0].total(), test.cluster.bytes_per_rank);
        ReplicaPlan more = plan.replicas[0];
        const std::int32_t kept = more.stages[0].kept_layers++;
        EXPECT_GT(stage_memory(test.job, only_replica(plan).with(more), 0).total(),
                  test.cluster.bytes_per_rank);
        EXPECT_LE(6 - kept, fewest);
        fewest = 6 - kept;
        const std::string text =
            kept == 0 ? ": too little" : cat(", ", fewest, " of 6 layers: too little");
        EXPECT_TRUE(has(described(test), cat("recompute   layer", text))) << described(test);
    }
    EXPECT_LE(fewest, 2);
    test.job.parallel.recompute = Recompute::layer;
    EXPECT_EQ(test.plan().replicas[0].stages[0].kept_layers, 0);
    test.job.parallel.recomputed_layers = 5;
    EXPECT_EQ(test.plan().replicas[0].stages[0].kept_layers, 1);
    test.job.parallel.recomputed_layers = 0;
    EXPECT_TRUE(has(problems_of(test), "would fit"));
}

/// Samples that leave no room for the activations of all layers beside them, in microbatches of
/// whatever size: large ones would recompute nearly all layers, those of one sample a few.
TEST(FitMemory, MicrobatchesThatRecomputeAreAsLargeAsIsFastest) {
    Case test = uniform_case(4, 1, 64, 4096, 8);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.bytes_per_rank = bytes_needed(test, 4096, Recompute::none) - 1;
    test.job.model.residency.kind = Residency::Kind::all;
    const Plan plan = test.plan();
    EXPECT_EQ(plan.replicas[0].recompute, Recompute::layer);
    EXPECT_EQ(plan.replicas[0].microbatch_tokens, 4096);
    EXPECT_GE(plan.replicas[0].stages[0].kept_layers, 25);
    test.job.parallel.recompute = Recompute::layer;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 8192);
}

TEST(FitMemory, TheDescriptionSaysWhichAndWhy) {
    Case test = deep_case(1);
    EXPECT_TRUE(has(described(test), "recompute   none: memory is not known\n"));
    test.cluster.bytes_per_rank = bytes_needed(test, 256, Recompute::none) - 1;
    const auto [plan, report] = test.planned();
    const std::string text = described(test);
    EXPECT_TRUE(has(text, "of 6 layers: too little memory for the activations of all layers\n"))
        << text;
    EXPECT_TRUE(has(text, cat(human_bytes(plan.bytes_per_rank),
                              " a rank; microbatch_tokens that fit: ", report.fitting.none,
                              " with recompute none, ", report.fitting.layer, " with layer\n")))
        << text;
    test.cluster.bytes_per_rank = std::uint64_t{1} << 40U;
    const std::string roomy = described(test);
    EXPECT_TRUE(has(roomy, "recompute   none: the activations of all layers fit\n")) << roomy;
    EXPECT_TRUE(has(roomy, "that fit: 1048576 or more with")) << roomy;
    test.job.parallel.recompute = Recompute::layer;
    EXPECT_TRUE(has(described(test), "recompute   layer: as the job says\n"));
    test.job.parallel.recompute = Recompute::automatic;
    test.job.parallel.deployment = {{.recompute = Recompute::layer}};
    EXPECT_TRUE(has(described(test), "recompute   layer: as the job says\n"));
    test.job.parallel.deployment.clear();
    const WorkerShape chosen{{.count = 2, .microbatch_tokens = 256}, Recompute::none};
    test.job = job_of_worker(test.job, chosen);
    EXPECT_TRUE(has(described(test), "recompute   none: the activations of all layers fit\n"));
}

}  // namespace loratrain::plan_test
