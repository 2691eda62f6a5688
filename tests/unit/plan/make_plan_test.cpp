#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "config/model_presets.h"
#include "plan/memory/streamed_layers.h"
#include "plan/text/plan_text.h"
#include "support/problems.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using test::has;

/// Four adapters on three layers and two ranks: whole layers are 2 and 1.
Case uneven_case() {
    Case test = uniform_case(4, 2, 20, 10, 8);
    test.model = cheap_head_model(3);
    test.job.schedule.packing = Packing::greedy;
    return test;
}

bool shares_layers(const Plan& plan) {
    return !plan.replicas[0].stages.front().last_layer_adapters.is_all();
}

/// The most that a rank needs with these stages and as many microbatches in flight.
std::uint64_t bytes_with(const Case& test, Plan plan, const std::vector<StagePlan>& stages) {
    plan.replicas[0].stages = stages;
    plan.replicas[0].max_in_flight = static_cast<std::int32_t>(stages.size());
    std::uint64_t most = 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
        most = std::max(most, stage_memory(test.job, only_replica(plan), s).total());
    }
    return most;
}

}  // namespace

TEST(MakePlan, FillsEveryField) {
    Case test = uniform_case(3, 2, 20, 10, 8);
    test.model = cheap_head_model(4);
    const Plan plan = test.plan();
    EXPECT_EQ(plan.replicas[0].stages.size(), 2U);
    EXPECT_EQ(plan.replicas[0].max_in_flight, 2);
    EXPECT_EQ(plan.backend, BackendKind::cpu);
    EXPECT_EQ(plan.compute, DType::f32);
    EXPECT_EQ(plan.weights, WeightFormat::f32);
    EXPECT_EQ(plan.replicas[0].microbatch_tokens, 240);
    EXPECT_EQ(plan.replicas[0].pad_columns, 32);  // 3 x 8, rounded up
    EXPECT_EQ(plan.replicas[0].saved_columns, 32);
    EXPECT_EQ(plan.replicas[0].recompute, Recompute::none);
    EXPECT_EQ(plan.longest_sample, 10);
    EXPECT_EQ(plan.adapters[1].name, "a1");
    EXPECT_EQ(plan.adapters[1].samples, 20);
    EXPECT_EQ(plan.adapters[1].steps_per_epoch, 3);
    EXPECT_EQ(plan.adapters[1].total_steps, 3);
    ASSERT_EQ(plan.memory.size(), 2U);
    EXPECT_EQ(plan.memory[1].total(), stage_memory(test.job, only_replica(plan), 1).total());
}

TEST(MakePlan, SharesLayersWhereAllTrainFromTheStart) {
    Case test = uneven_case();
    const std::vector<StagePlan> stages = test.plan().replicas[0].stages;
    EXPECT_TRUE(cover_every_layer(stages, 3, 4));
    EXPECT_EQ(stages[0].layer_count, 2);
    EXPECT_EQ(stages[1].first_layer, 1);
    EXPECT_EQ(stages[1].layer_count, 2);
    EXPECT_TRUE(stages[0].last_layer_adapters == (AdapterSpan{0, 2}) ||
                stages[0].last_layer_adapters == (AdapterSpan{2}));
    test.job.schedule.max_adapters = 4;
    EXPECT_TRUE(shares_layers(test.plan()));
    test.job.schedule.max_adapters = 3;
    EXPECT_FALSE(shares_layers(test.plan()));
    EXPECT_EQ(test.plan().replicas[0].stages[0].layer_count, 2);
    EXPECT_EQ(test.plan().replicas[0].stages[1].first_layer, 2);
}

TEST(MakePlan, SharesNothingOneAdapterAtATime) {
    Case test = uneven_case();
    for (const auto& [policy, shares] :
         {std::pair(SchedulePolicy::balanced, true), std::pair(SchedulePolicy::mlora, true),
          std::pair(SchedulePolicy::one_f_one_b, false),
          std::pair(SchedulePolicy::sequential, false)}) {
        test.job.schedule.policy = policy;
        EXPECT_EQ(shares_layers(test.plan()), shares) << static_cast<int>(policy);
    }
}

TEST(MakePlan, SharesByTheRowsOfEachAdapter) {
    Case test = uneven_case();
    test.job.adapters[0].global_batch_size = 18;
    test.job.adapters[1].global_batch_size = 1;
    test.job.adapters[2].global_batch_size = 1;
    test.job.adapters[3].global_batch_size = 12;
    const AdapterSpan below = test.plan().replicas[0].stages[0].last_layer_adapters;
    EXPECT_TRUE(below == (AdapterSpan{0, 1}) || below == AdapterSpan{1});
}

TEST(MakePlan, SharesNothingThatDoesNotFit) {
    // A head of half a layer: whole layers are 2 and 2, shared ones 3 and 2.
    Case test = uneven_case();
    test.model = cheap_head_model(4);
    test.model.vocab_size = 300;
    for (const bool given : {true, false}) {
        if (given) test.job.parallel.microbatch_tokens = 64;
        const Plan roomy = test.plan();
        ASSERT_TRUE(shares_layers(roomy));
        std::vector<StagePlan> whole = roomy.replicas[0].stages;
        ASSERT_EQ(whole[0].layer_count, 3);
        whole[0].layer_count = 2;
        whole[0].last_layer_adapters = whole[1].first_layer_adapters = {};
        const std::uint64_t least = bytes_with(test, roomy, roomy.replicas[0].stages);
        ASSERT_LT(bytes_with(test, roomy, whole), least);
        test.cluster.bytes_per_rank = least;
        EXPECT_TRUE(shares_layers(test.plan()));
        for (const std::uint64_t bytes : {least - 1, bytes_with(test, roomy, whole)}) {
            test.cluster.bytes_per_rank = bytes;
            const Plan plan = test.plan();
            EXPECT_FALSE(shares_layers(plan));
            EXPECT_EQ(plan.replicas[0].stages[0].layer_count, 2);
            EXPECT_EQ(plan.replicas[0].microbatch_tokens, roomy.replicas[0].microbatch_tokens);
            EXPECT_EQ(plan.replicas[0].recompute, Recompute::none);
            EXPECT_EQ(plan.first_admitted.size(), 4U);
        }
        test.cluster.bytes_per_rank = 0;
        test.job.parallel.microbatch_tokens.reset();
    }
}

TEST(MakePlan, PrecisionIsComputeTypeAndWeightFormat) {
    using enum BackendKind;
    struct Choice {
        BackendKind backend;
        Precision precision;
        DType compute;
        WeightFormat weights;
    };
    for (const Choice& choice :
         {Choice{cuda, Precision::automatic, DType::bf16, WeightFormat::bf16},
          {cuda, Precision::bf16, DType::bf16, WeightFormat::bf16},
          {cuda, Precision::fp32, DType::f32, WeightFormat::f32},
          {cpu, Precision::automatic, DType::f32, WeightFormat::f32},
          {cpu, Precision::bf16, DType::f32, WeightFormat::bf16},
          {cpu, Precision::fp32, DType::f32, WeightFormat::f32}}) {
        Case test = uniform_case(1, 1, 4, 10, 2);
        test.cluster.backend = choice.backend;
        test.job.model.precision = choice.precision;
        EXPECT_EQ(test.plan().compute, choice.compute);
        EXPECT_EQ(test.plan().weights, choice.weights);
    }
}

TEST(MakePlan, AQuantisedModelOf70BillionFitsOneGpuOf80Gigabytes) {
    Case test = uniform_case(1, 1, 16, 2048, 8);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.bytes_per_rank = 75ULL << 30U;
    test.model = *model_preset("llama-3-70b-nf4");
    test.job.model.residency.kind = Residency::Kind::all;
    const Plan plan = test.plan();
    EXPECT_EQ(plan.weights, WeightFormat::bf16);
    EXPECT_EQ(linear_format(plan), WeightFormat::nf4);
    EXPECT_TRUE(weights_are_staged(plan));
    EXPECT_FALSE(head_is_staged(plan));
    EXPECT_GE(plan.replicas[0].microbatch_tokens, 2048);
    // Codes and scales of the linears, 4.5 bits a weight, and the dense rest.
    const auto all = static_cast<double>(matmul_parameters(test.model));
    const double head = 128256.0 * 8192.0;
    EXPECT_NEAR(static_cast<double>(plan.memory[0].weights), (all - head) * 4.5 / 8 + 4 * head,
                1e7);
    for (const char* other : {"llama-3-70b-int8", "llama-3-70b-fp8", "llama-3-70b"}) {
        test.model = *model_preset(other);
        test.cluster.bytes_per_rank =
            std::string(other) == "llama-3-70b" ? 131ULL << 30U : 64ULL << 30U;
        EXPECT_THROW(test.plan(), InputError) << other;
    }
    EXPECT_FALSE(model_preset("llama-3-70b-nf5"));
}

/// Both orders of its codes take 137 GB, which with embedding and head is more than 131 GiB.
TEST(MakePlan, KeepsFp8CodesInOneOrderWhereBothDoNotFit) {
    Case test = uniform_case(1, 1, 16, 2048, 8);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.bytes_per_rank = 131ULL << 30U;
    test.model = *model_preset("llama-3-70b");
    test.job.model.precision = Precision::fp8;
    test.job.model.residency.kind = Residency::Kind::all;
    const Plan plan = test.plan();
    EXPECT_TRUE(plan.fp8_one_order);
    EXPECT_GE(plan.replicas[0].microbatch_tokens, 4096);
    EXPECT_LE(plan.memory[0].total(), test.cluster.bytes_per_rank);
    EXPECT_TRUE(plan_from_text(to_text(plan)).fp8_one_order);
    EXPECT_NE(described(test).find("codes transposed at each backward"), std::string::npos);
    test.cluster.bytes_per_rank *= 2;
    const Plan roomy = test.plan();
    EXPECT_FALSE(roomy.fp8_one_order);
    EXPECT_FALSE(plan_from_text(to_text(roomy)).fp8_one_order);
    const auto linears = static_cast<std::uint64_t>(matmul_parameters(test.model)) - 128256 * 8192;
    EXPECT_EQ(roomy.memory[0].weights - plan.memory[0].weights, linears);
    test.cluster.bytes_per_rank = 70ULL << 30U;
    EXPECT_THROW(test.plan(), InputError);
}

TEST(MakePlan, LayersStreamWhereTheyDoNotFit) {
    Case test = uniform_case(4, 1, 64, 2048, 8);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    test.cluster.bytes_per_rank = 131ULL << 30U;
    test.model = *model_preset("llama-3-70b");
    test.job.parallel.recompute = Recompute::layer;
    const Plan plan = test.plan();
    const StagePlan& stage = plan.replicas[0].stages[0];
    EXPECT_GT(stage.resident_layers, 40);
    EXPECT_LT(stage.resident_layers, 70);
    EXPECT_LE(plan.memory[0].total(), test.cluster.bytes_per_rank);
    // One more does not fit.
    ReplicaPlan more = plan.replicas[0];
    ++more.stages[0].resident_layers;
    EXPECT_GT(stage_memory(test.job, only_replica(plan).with(more), 0).total(),
              test.cluster.bytes_per_rank);
    EXPECT_EQ(plan.memory[0].host, static_cast<std::uint64_t>(80 - stage.resident_layers) *
                                       host_layer_bytes(streamed_layer(only_replica(plan))));
    EXPECT_EQ(plan.replicas[0].recompute, Recompute::layer);
    EXPECT_NE(described(test).find("100% of their transfers hidden behind computation"),
              std::string::npos);

    test.cluster.host_bytes_per_rank = plan.memory[0].host;
    EXPECT_EQ(test.plan().memory[0].host, plan.memory[0].host);
    test.job.model.residency.kind = Residency::Kind::stream;
    try {
        test.plan();
        ADD_FAILURE() << "the host has too little memory";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("the 80 layers that stream on rank 0 need"),
                  std::string::npos)
            << error.what();
    }
    test.cluster.host_bytes_per_rank = 0;
    EXPECT_EQ(test.plan().replicas[0].stages[0].resident_layers, 0);
}

TEST(MakePlan, AutomaticResidencyLeavesOtherPlansAsTheyAre) {
    Case test = uniform_case(4, 1, 64, 2048, 8);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.bytes_per_rank = 75ULL << 30U;
    test.model = *model_preset("llama-3.1-8b");
    const std::string automatic = to_text(test.plan());
    test.job.model.residency.kind = Residency::Kind::all;
    EXPECT_EQ(to_text(test.plan()), automatic);
    EXPECT_EQ(automatic.find("resident_layers"), std::string::npos);
    EXPECT_EQ(automatic.find("layer_transfer"), std::string::npos);
}

TEST(MakePlan, TotalStepsAsHuggingFace) {
    Case test = uniform_case(1, 1, 20, 10, 8);
    const auto steps = [&](double epochs) {
        test.job.adapters[0].num_train_epochs = epochs;
        return test.plan().adapters[0].total_steps;
    };
    EXPECT_EQ(steps(1.0), 3);
    EXPECT_EQ(steps(1.5), 5);
    EXPECT_EQ(steps(0.1), 1);
    EXPECT_EQ(steps(4.0), 12);
    test.job.adapters[0].max_steps = 7;
    EXPECT_EQ(steps(1.0), 7);
}

TEST(MakePlan, MicrobatchTokensAutomatic) {
    Case test = uniform_case(2, 1, 8, 100, 8);
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 1600);  // both batches of the only group
    test.job.adapters[0].global_batch_size = 2;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 1000);
    test.datasets[0].train = equal_samples(100, 1000);
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 2048);
    test.datasets[0].train[7].tokens = 3000;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 3000);
    test.datasets[0].eval = equal_samples(1, 4000);
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 4000);
}

TEST(MakePlan, CudaTakesLargerMicrobatches) {
    Case test = uniform_case(2, 1, 100, 1000, 8);
    test.cluster.backend = BackendKind::cuda;
    test.model = *model_preset("llama-3.1-8b");
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 8192);
    test.datasets[0].train[7].tokens = 9000;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 9000);
    test.datasets[0].train = equal_samples(100, 10);
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 160);
}

TEST(MakePlan, OneGpuTakesStillLargerMicrobatchesOfSmallModels) {
    Case test = uniform_case(2, 1, 100, 1000, 16);
    test.cluster.backend = BackendKind::cuda;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 32000);  // a round
    test.job.adapters[0].global_batch_size = 32;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 32768);
    test.model.hidden_size = 1024;
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 16384);
    test.model.layers = 2;
    test.cluster.ranks = 2;
    EXPECT_LE(test.plan().replicas[0].microbatch_tokens, 8192);
}

TEST(MakePlan, PadIsBounded) {
    Case test = uniform_case(4, 1, 8, 10, 8);
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 32;
    EXPECT_EQ(test.plan().replicas[0].pad_columns, 128);
    test.job.adapters.push_back(test.job.adapters[0]);
    test.job.adapters.back().r = 1;
    EXPECT_EQ(test.plan().replicas[0].pad_columns, 128);
    EXPECT_EQ(test.plan().replicas[0].saved_columns, 128);
    test.cluster.backend = BackendKind::cuda;
    EXPECT_EQ(test.plan().replicas[0].pad_columns, 144);
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 32;
    while (test.job.adapters.size() < 17) test.job.adapters.push_back(test.job.adapters[0]);
    EXPECT_EQ(test.plan().replicas[0].pad_columns, 512);
    EXPECT_EQ(test.plan().replicas[0].saved_columns, 512);
}

TEST(MakePlan, PadHoldsTheAdaptersThatShareAMicrobatch) {
    Case test = uniform_case(12, 1, 8, 10, 8);
    test.job.adapters[7].r = 20;
    test.job.adapters[9].r = 30;
    const auto pad = [&](SchedulePolicy policy, std::optional<int> most) {
        test.job.schedule.policy = policy;
        test.job.schedule.max_adapters = most;
        const Plan plan = test.plan();
        EXPECT_EQ(plan.replicas[0].saved_columns, plan.replicas[0].pad_columns);
        return plan.replicas[0].pad_columns;
    };
    EXPECT_EQ(pad(SchedulePolicy::balanced, {}), 128);  // 10 x 8 + 20 + 30, rounded up, at most 128
    EXPECT_EQ(pad(SchedulePolicy::balanced, 1), 32);
    EXPECT_EQ(pad(SchedulePolicy::balanced, 2), 64);
    EXPECT_EQ(pad(SchedulePolicy::balanced, 4), 80);
    EXPECT_EQ(pad(SchedulePolicy::balanced, 40), 128);
    for (const SchedulePolicy policy :
         {SchedulePolicy::sequential, SchedulePolicy::one_f_one_b, SchedulePolicy::mlora}) {
        EXPECT_EQ(pad(policy, {}), 32);
    }
    test.job.adapters.resize(8);  // 7 x 8 + 20
    EXPECT_EQ(pad(SchedulePolicy::mlora, {}), 32);
    test.job.adapters.resize(7);  // in free_columns
    EXPECT_EQ(pad(SchedulePolicy::mlora, {}), 64);
    EXPECT_EQ(pad(SchedulePolicy::balanced, 2), 64);
}

TEST(MakePlan, RefusesStagesThatDoNotFit) {
    Case test = uniform_case(1, 4, 8, 10, 8);
    test.job.parallel.pipeline_stages = 2;
    EXPECT_TRUE(has(problems_of(test), "tune.yaml: parallel.pipeline_stages: 2 of 4 ranks would"));
    test.job.parallel.pipeline_stages = 6;
    EXPECT_TRUE(has(problems_of(test), "6 stages, but the model has 4 layers (use at most 4)"));
    EXPECT_TRUE(has(problems_of(test), "6 stages, but only 4 ranks"));
    test.job.parallel.pipeline_stages = 0;
    EXPECT_TRUE(has(problems_of(test), "0 stages (use at least 1"));
    test.job.parallel.pipeline_stages.reset();
    test.cluster.ranks = 5;
    EXPECT_TRUE(
        has(problems_of(test), "5 stages, but the model has 4 layers (start at most 4 ranks"));
}

TEST(MakePlan, LanesOfADeployment) {
    Case test = uniform_case(2, 4, 8, 10, 8);
    test.model.vocab_size = 300;
    const std::uint64_t of_one_lane = [&] {
        Case without = test;
        without.cluster.ranks = 2;
        return without.plan().memory[0].weights;
    }();
    test.job.parallel.deployment = {{2, 2, 1}};
    const Plan plan = test.plan();
    ASSERT_EQ(plan.replicas.size(), 1U);
    EXPECT_EQ(plan.replicas[0].tensor, 2);
    ASSERT_EQ(plan.replicas[0].stages.size(), 2U);
    EXPECT_EQ(plan.replicas[0].stages[1].rank, 2);
    ASSERT_EQ(plan.memory.size(), 4U);
    for (const std::size_t stage : {0U, 2U}) {
        EXPECT_EQ(plan.memory[stage].total(), plan.memory[stage + 1].total());
    }
    EXPECT_LT(plan.memory[0].weights, of_one_lane);
    EXPECT_GT(2 * plan.memory[0].weights, of_one_lane);
    EXPECT_TRUE(has(described(test), "lanes       2 per stage"));
    EXPECT_TRUE(has(described(test), "2-3"));
    const Plan again = make_plan(test.job, test.model, test.datasets, test.cluster, &plan);
    EXPECT_EQ(to_text(again), to_text(plan));
    EXPECT_EQ(to_text(plan_from_text(to_text(plan))), to_text(plan));
}

TEST(MakePlan, RefusesDeploymentsThatCannotBe) {
    Case test = uniform_case(1, 4, 8, 10, 8);
    test.model.vocab_size = 300;
    const auto problems = [&](std::vector<ReplicaJob> deployment) {
        test.job.parallel.deployment = std::move(deployment);
        return problems_of(test);
    };
    EXPECT_EQ(problems({{2, 1, 1}}),
              "tune.yaml: parallel.deployment: takes 2 ranks, but 4 were started (start 2 ranks "
              "(mpirun -np 2), or add {tp: 1, pp: 1, count: 2})");
    EXPECT_EQ(problems({{3, 1, 1}}),
              "tune.yaml: parallel.deployment[0].tp: 3 does not divide 4 heads (use 1, 2 or 4)\n"
              "tune.yaml: parallel.deployment: takes 3 ranks, but 4 were started (start 3 ranks "
              "(mpirun -np 3), or add {tp: 1, pp: 1, count: 1})");
    EXPECT_TRUE(has(problems({{1, 9, 1}}),
                    "tune.yaml: parallel.deployment[0].pp: 9 stages, but the model has 4 layers "
                    "(use at most 4)"));
    for (const std::vector<ReplicaJob>& several :
         {std::vector<ReplicaJob>{{1, 2, 2}}, {{2, 1, 1}, {1, 2, 1}}}) {
        EXPECT_EQ(problems(several), "");
    }
    EXPECT_TRUE(has(problems({{2147483647, 2147483647, 2147483647}}), "takes 1000000000 ranks"));
    test.cluster.backend = BackendKind::cuda;
    EXPECT_EQ(problems({{2, 2, 1}}), "");
    EXPECT_EQ(problems({{1, 4, 1}}), "");
    EXPECT_EQ(problems({{1, 2, 2}}), "");
}

TEST(MakePlan, RefusesAdaptersWithoutATargetInTheModel) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    test.job.adapters[1].r = 100;  // k and v are [32, 64]
    EXPECT_EQ(problems_of(test), "");
    ModuleKeys keys;
    keys.layers_to_transform = {test.model.layers};
    AdapterJob& adapter = test.job.adapters[1];
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    EXPECT_TRUE(
        has(problems_of(test), "tune.yaml: adapters.a1.target_modules: none of them is in"));
}

TEST(MakePlan, RefusesRulesThatMatchNothingInTheModel) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    const std::string last = std::to_string(test.model.layers);
    const auto problem = [&](const auto& change) {
        ModuleKeys keys;
        change(keys);
        AdapterJob& adapter = test.job.adapters[1];
        adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
        return problems_of(test);
    };
    EXPECT_TRUE(has(problem([&](ModuleKeys& keys) {
                        keys.layers_to_transform = {0, test.model.layers};
                    }),
                    "adapters.a1.layers_to_transform: there is no layer " + last + " of this"));
    EXPECT_TRUE(has(problem([&](ModuleKeys& keys) {
                        keys.target_modules = {"q_proj", last + ".self_attn.v_proj"};
                    }),
                    "target_modules: '" + last + ".self_attn.v_proj' matches no module"));
    EXPECT_TRUE(has(problem([&](ModuleKeys& keys) {
                        keys.rank_pattern = {{"layers." + last + "..*", 4}};
                    }),
                    "rank_pattern: 'layers." + last + "..*' matches no target"));
    EXPECT_TRUE(has(problem([&](ModuleKeys& keys) { keys.exclude_modules = {"gate_up_proj"}; }),
                    "exclude_modules: 'gate_up_proj' matches no module"));
    EXPECT_EQ(problem([&](ModuleKeys& keys) { keys.rank_pattern = {{"layers.0..*", 4}}; }), "");
}

TEST(MakePlan, RefusesLinearsThatTheModelDoesNotHave) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    EXPECT_EQ(problems_of(test), "");
    test.model.attention().fused_qkv = true;
    EXPECT_EQ(problems_of(test), "") << "all-linear is what the model has";
    test.job.adapters[1].targets = {};
    test.job.adapters[1].targets[static_cast<std::size_t>(Linear::k)] = true;
    const std::string text = problems_of(test);
    EXPECT_TRUE(has(text, "adapters.a1.target_modules: k_proj is not a linear layer of a "));
    EXPECT_TRUE(has(text, "it has o_proj, gate_proj, up_proj, down_proj, qkv_proj"));
}

namespace {

/// Two adapters on a model with experts; the second on gate, up and down of them.
Case case_of_experts() {
    Case test = uniform_case(2, 1, 8, 10, 8);
    test.model.descriptions.front().mlp = ExpertSpec{8, 2, 32, true};
    test.job.adapters[1].targets = {true, false, false, false, true, true, true};
    return test;
}

}  // namespace

TEST(MakePlan, TakesLoraInExpertsWhereItIsNamed) {
    Case test = case_of_experts();
    EXPECT_EQ(problems_of(test), "");
    EXPECT_TRUE(test.plan().expert_lora);
    test.job.adapters[1].targets[static_cast<std::size_t>(Linear::gate)] = false;
    test.job.adapters[1].targets[static_cast<std::size_t>(Linear::up)] = false;
    test.job.adapters[1].use_rslora = true;
    EXPECT_EQ(problems_of(test), "") << "on down alone";
    test.job.adapters[1].targets = all_linears();
    EXPECT_EQ(problems_of(test), "");
    EXPECT_FALSE(test.plan().expert_lora) << "all-linear means none";
}

TEST(MakePlan, RefusesWhatLoraInExpertsDoesNotGoWith) {
    const auto refused = [](const auto& change, const std::string& what) {
        Case test = case_of_experts();
        change(test.job.adapters[1]);
        test.job.adapters[1].form = form_of(test.job.adapters[1]);
        EXPECT_TRUE(has(problems_of(test), "tune.yaml: adapters.a1." + what)) << problems_of(test);
    };
    refused([](AdapterJob& a) { a.targets[static_cast<std::size_t>(Linear::gate)] = false; },
            "target_modules: names gate_proj or up_proj of experts without the rest");
    refused([](AdapterJob& a) { a.targets[static_cast<std::size_t>(Linear::down)] = false; },
            "target_modules: names gate_proj or up_proj of experts without the rest");
    refused(
        [](AdapterJob& a) {
            ModuleKeys keys;
            keys.layers_to_transform = {1};
            a.modules = std::make_shared<const ModuleTable>(keys, a.targets);
        },
        "target_modules: LoRA in the experts of a ");
    refused([](AdapterJob& a) { a.lora_dropout = 0.1; }, "lora_dropout: LoRA in the experts of ");
    refused([](AdapterJob& a) { a.use_dora = true; }, "use_dora: LoRA in the experts of a ");
    refused([](AdapterJob& a) { a.peft_type = PeftType::vera; },
            "peft_type: LoRA in the experts of a ");
    refused([](AdapterJob& a) { a.init_lora_weights = Initial::pissa; },
            "init_lora_weights: 'pissa' cannot start from the weights of experts");
    refused([](AdapterJob& a) { a.use_rslora = true; },
            "use_rslora: PEFT keeps gate_proj and up_proj of experts in one tensor with twice");
}

TEST(MakePlan, LoraBesideExperts) {
    Case test = case_of_experts();
    auto& experts = std::get<ExpertSpec>(test.model.descriptions.front().mlp);
    experts.shared_size = 64;
    test.job.adapters[1].targets = all_linears();
    EXPECT_EQ(problems_of(test), "");
    EXPECT_FALSE(test.plan().expert_lora);
    AdapterJob& adapter = test.job.adapters[1];
    EXPECT_GT(target_rank(adapter, test.model, 0, Linear::shared_up), 0);
    EXPECT_EQ(target_rank(adapter, test.model, 0, Linear::up), 0);
    adapter.use_rslora = true;
    EXPECT_EQ(problems_of(test), "");
    adapter.lora_dropout = 0.1;
    EXPECT_TRUE(has(problems_of(test), "lora_dropout: LoRA in the MLPs of a "));
    ModuleKeys keys;
    keys.target_regex = ".*self_attn.*";
    adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    EXPECT_EQ(problems_of(test), "") << "on attention alone";
    adapter.modules.reset();
    adapter.lora_dropout = 0.0;
    adapter.targets.fill(false);
    adapter.targets[static_cast<std::size_t>(Linear::gate_up)] = true;
    EXPECT_TRUE(has(problems_of(test), "target_modules: gate_up_proj is not a linear layer of a "));
    EXPECT_TRUE(has(problems_of(test), "v_proj, o_proj, gate_proj, up_proj, down_proj"));
}

TEST(MakePlan, RefusesAStartWithMoreColumnsThanTheWeights) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    AdapterJob& adapter = test.job.adapters[1];
    adapter.r = 33;  // k and v are [32, 64]
    adapter.init_lora_weights = Initial::pissa;
    adapter.form = form_of(adapter);
    EXPECT_TRUE(has(problems_of(test),
                    "tune.yaml: adapters.a1.init_lora_weights: 'pissa' needs r of at most 32 on "
                    "model.layers.0.self_attn.k_proj [32, 64], which has r 33"));
    adapter.r = 32;
    EXPECT_EQ(problems_of(test), "");
}

TEST(MakePlan, KeepsOutputsThatDoraReads) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    EXPECT_FALSE(test.plan().dora_outputs);
    const std::uint64_t plain = test.plan().memory[0].activations;
    AdapterJob& adapter = test.job.adapters[1];
    adapter.use_dora = true;
    EXPECT_TRUE(test.plan().dora_outputs);
    EXPECT_GT(test.plan().memory[0].activations, plain);
    adapter.lora_dropout = 0.1;
    EXPECT_FALSE(test.plan().dora_outputs) << "made of what dropout leaves";
    adapter.lora_dropout = 0.0;
    adapter.targets = {true, true, true, false, true, true, false};
    EXPECT_FALSE(test.plan().dora_outputs) << "not on o_proj and down_proj";
}

TEST(MakePlan, RefusesDoraWhereWeightsAreCodes) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    test.job.adapters[1].use_dora = true;
    EXPECT_EQ(problems_of(test), "");
    test.job.model.precision = Precision::fp8;
    EXPECT_TRUE(has(problems_of(test), "tune.yaml: adapters.a1.use_dora: DoRA needs the norms"));
    EXPECT_FALSE(has(problems_of(test), "adapters.a0.use_dora"));
}

TEST(MakePlan, RefusesSamplesThatDoNotFit) {
    Case test = uniform_case(1, 1, 8, 10, 8);
    test.job.parallel.microbatch_tokens = 40;
    test.datasets[0].train[3].tokens = 50;
    test.datasets[0].train[5].tokens = 41;
    EXPECT_TRUE(has(problems_of(test),
                    "tune.yaml: datasets.data.path: 2 samples have more tokens"
                    " than parallel.microbatch_tokens 40; the longest is number 3 (from 0), with"
                    " 50 tokens (use microbatch_tokens: 50 or auto"));
    test.datasets[0].train = equal_samples(8, 40);
    EXPECT_EQ(problems_of(test), "");
}

TEST(MakePlan, PairsAreGroupsOfTwo) {
    Case test = uniform_case(2, 1, 10, 9, 3);
    test.datasets[0].group_samples = 2;
    for (AdapterJob& adapter : test.job.adapters) adapter.loss.loss = Loss::dpo;
    const Plan plan = test.plan();
    EXPECT_EQ(plan.adapters[0].group_samples, 2);
    EXPECT_EQ(plan.adapters[0].steps_per_epoch, 2);  // of five pairs
    EXPECT_GE(only_replica(plan).replica.microbatch_tokens, 18);
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    EXPECT_EQ(window.batches[0].samples, 6);
    EXPECT_EQ(window.batches[0].denominator, 3);
    EXPECT_EQ(window.batches[0].chosen_targets, 3 * 8);
    test.job.parallel.microbatch_tokens = 17;
    EXPECT_TRUE(
        has(problems_of(test),
            "5 pairs have more tokens than parallel.microbatch_tokens 17; the longest is number 0 "
            "(from 0), with 18 tokens"));
}

TEST(MakePlan, BatchesThatAreComparedStayWhole) {
    Case test = uniform_case(2, 1, 20, 9, 3);
    test.datasets[0].group_samples = 2;
    test.job.adapters[0].loss.loss = Loss::cit;
    test.job.adapters[1].loss.loss = Loss::dpo;
    test.job.parallel.microbatch_tokens = 54;
    const Plan plan = test.plan();
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 4);
    for (const Microbatch& microbatch : window.microbatches) {
        for (const Segment& segment : microbatch.segments) {
            if (segment.adapter != AdapterId{0}) continue;
            EXPECT_EQ(segment.samples.size(), segment.step == 3 ? 2U : 6U);
        }
    }
    EXPECT_EQ(window.batches[0].denominator, 6 * 8);  // targets
    test.job.parallel.microbatch_tokens = 53;
    EXPECT_EQ(
        problems_of(test),
        "tune.yaml: adapters.a0.global_batch_size: 3 pairs, which cit compares with each other "
        "in one microbatch, have up to 54 tokens, more than parallel.microbatch_tokens 53 "
        "(use microbatch_tokens: 54 or auto, or global_batch_size: 2, or a smaller "
        "max_seq_len)");
    test.job.parallel.microbatch_tokens.reset();
    EXPECT_GE(only_replica(test.plan()).replica.microbatch_tokens, 54);
    test.job.adapters[0].global_batch_size = 1;
    EXPECT_TRUE(has(problems_of(test), "global_batch_size: is 1 pair, which cit has nothing to"));
    test.job.adapters[0].global_batch_size = 3;
    test.datasets[0].train[7].targets = 0;
    EXPECT_TRUE(has(problems_of(test),
                    "datasets.data.path: 1 sample has no label to train on; "
                    "cit of adapter a0 compares samples by their last label"));
}

TEST(MakePlan, ExamplesAndTheirKlSamplesAreGroups) {
    Case test = uniform_case(1, 1, 24, 9, 6);
    test.datasets[0].group_samples = 6;  // of 3 examples
    for (std::size_t i = 0; i < 24; i += 2) test.datasets[0].train[i].undesirable = true;
    test.job.adapters[0].loss.loss = Loss::kto;
    const Plan plan = test.plan();
    EXPECT_EQ(plan.adapters[0].steps_per_epoch, 2);  // of 12 examples
    const Window window = plan_window(test.job, plan, test.datasets, fresh(plan), 1);
    EXPECT_EQ(window.batches[0].samples, 12);
    EXPECT_EQ(window.batches[0].denominator, 6);
    for (const SampleRef& sample : window.microbatches[0].segments[0].samples) {
        EXPECT_EQ(sample.undesirable, sample.index % 2 == 0);
    }
    test.job.parallel.microbatch_tokens = 53;
    EXPECT_TRUE(has(problems_of(test),
                    "4 groups of kl_batch_size 3 examples and as many mismatched ones have more "
                    "tokens than parallel.microbatch_tokens 53; the longest is number 0 (from 0), "
                    "with 54 tokens"));
    test.job.parallel.microbatch_tokens.reset();
    test.job.adapters[0].global_batch_size = 4;
    EXPECT_TRUE(has(problems_of(test), "global_batch_size: is 4, not a multiple of datasets."));
    test.job.adapters[0].loss.loss = Loss::sft;
    EXPECT_TRUE(has(problems_of(test), "holds samples with a label of true or false"));
}

TEST(MakePlan, ABatchOfAFolderThatGrowsFitsAMessage) {
    Case test = uniform_case(1, 1, 24, 9, 6);
    test.datasets[0].rollouts = true;
    test.datasets[0].arrivals.emplace();
    test.job.datasets[0].path = "rollouts/";
    test.job.datasets[0].max_seq_len = 131072;
    AdapterJob& adapter = test.job.adapters[0];
    adapter.loss.loss = Loss::grpo;
    adapter.max_steps = 3;
    EXPECT_EQ(test.plan().adapters[0].total_steps, 3);
    adapter.global_batch_size = 1024;
    EXPECT_TRUE(has(problems_of(test),
                    "adapters.a0.global_batch_size: 1024 samples of up to 131072 tokens are more "
                    "than the ranks can be sent at once"));
}

TEST(MakePlan, RefusesLossesThatTheDataAreNotFor) {
    Case test = uniform_case(2, 1, 10, 9, 3);
    test.job.adapters[1].loss.loss = Loss::dpo;
    EXPECT_TRUE(
        has(problems_of(test),
            "adapters.a1.loss: dpo trains on pairs of chosen and rejected samples, but dataset"));
    test.datasets[0].group_samples = 2;
    EXPECT_TRUE(has(problems_of(test), "adapters.a0.loss: sft trains on single samples"));
    test.datasets[0].group_samples = 1;
    test.datasets[0].rollouts = true;
    test.job.adapters[1].loss.loss = Loss::grpo;
    EXPECT_TRUE(
        has(problems_of(test),
            "adapters.a0.loss: sft trains on single samples, but dataset data holds rollouts, "
            "with advantages and logprobs"));
    EXPECT_FALSE(has(problems_of(test), "adapters.a1.loss"));
    test.datasets[0].rollouts = false;
    EXPECT_TRUE(has(problems_of(test), "adapters.a1.loss: grpo trains on rollouts"));
}

TEST(MakePlan, RefusesDataThatCannotBeTrained) {
    Case test = uniform_case(1, 1, 8, 10, 8);
    for (SampleInfo& sample : test.datasets[0].train) sample.targets = 0;
    EXPECT_TRUE(has(problems_of(test), "datasets.data.path: data.jsonl has no label to train on"));
    test.datasets[0].train.clear();
    EXPECT_TRUE(has(problems_of(test), "datasets.data.path: data.jsonl has no samples"));
    test.datasets[0].train = equal_samples(4, 4);
    test.job.datasets[0].eval_path = "eval.jsonl";
    EXPECT_TRUE(has(problems_of(test), "datasets.data.eval_path: eval.jsonl has no samples"));
}

TEST(MakePlan, IgnoresDatasetsThatNobodyUses) {
    Case test = uniform_case(1, 1, 8, 10, 8);
    test.job.datasets.push_back(test.job.datasets[0]);
    test.datasets.emplace_back();
    EXPECT_EQ(problems_of(test), "");
}

TEST(MakePlan, RefusesImpossibleStepCounts) {
    Case test = uniform_case(2, 1, 8, 10, 8);
    test.job.adapters[0].num_train_epochs = 1e12;
    test.job.adapters[1].max_steps = 0;
    EXPECT_TRUE(has(problems_of(test), "adapters.a0.num_train_epochs: leads to 1e+12"));
    EXPECT_TRUE(has(problems_of(test), "adapters.a1.max_steps: leads to 0"));
}

TEST(MakePlan, ListsEveryProblem) {
    Case test = uniform_case(2, 2, 8, 10, 8);
    test.job.parallel.pipeline_stages = 3;
    ModuleKeys keys;
    keys.layers_to_transform = {1000};
    for (AdapterJob& adapter : test.job.adapters) {
        adapter.modules = std::make_shared<const ModuleTable>(keys, adapter.targets);
    }
    test.datasets[0].train.clear();
    try {
        test.plan();
        FAIL();
    } catch (const InputError& error) {
        EXPECT_EQ(error.problems().size(), 5U);
    }
}

}  // namespace loratrain::plan_test
