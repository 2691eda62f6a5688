#include "plan/text/plan_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

Plan odd_plan() {
    Plan plan = uniform_case(3, 2, 8, 10, 4).plan();
    plan.model.family = "odd \"family\" \\ : {x}, # \n\t\x01 \xc3\xa9";
    plan.model.rms_norm_eps = 0.1 + 0.2;
    plan.model.rope = {RopeType::llama3, 500000.0, 1.0 / 3.0, 1e-300, 12345678.9, 4096};
    plan.model.qk_norm = true;
    plan.model.tie_word_embeddings = true;
    plan.backend = BackendKind::cuda;
    plan.compute = DType::bf16;
    plan.weights = WeightFormat::bf16;
    plan.adapters[1].name = "true";
    plan.adapters[2].name = "1e3";
    plan.memory[0].weights = 18446744073709551615U;
    plan.memory[1].engine = 77;
    plan.replicas[0].recompute = Recompute::layer;
    plan.samples = {12, 3, 45};
    plan.bytes_per_rank = 9876543210;
    plan.fitting = {100, 2000};
    plan.costs = {{0.1 + 0.2, 1e-300, 1.0 / 3.0},
                  {4, 5, 6},
                  0.7,
                  {7, 8, 9},
                  10,
                  11,
                  12,
                  13,
                  1.5,
                  4,
                  "\"x\": #"};
    plan.adapters[1].group_samples = 2;
    plan.adapter_capacity = 19;
    plan.first_admitted = {AdapterId{2}, AdapterId{0}};
    plan.replicas[0].stages[0].last_layer_adapters = {2};
    plan.replicas[0].stages[1].first_layer_adapters = {0, 2};
    plan.trials = {{4096, 3, 1.0 / 3.0}, {8192, 1, 12345.6}};
    return plan;
}

}  // namespace

TEST(PlanText, KeepsEveryField) {
    const Plan plan = odd_plan();
    const Plan read = plan_from_text(to_text(plan));
    EXPECT_EQ(read.adapter_capacity, 19);
    EXPECT_EQ(read.first_admitted, plan.first_admitted);
    ASSERT_EQ(read.trials.size(), 2U);
    EXPECT_EQ(read.trials[0].tokens_per_second, 1.0 / 3.0);
    EXPECT_EQ(read.trials[1].microbatch_tokens, 8192);
    EXPECT_EQ(read.trials[1].adapters, 1);
    EXPECT_EQ(read.model.family, plan.model.family);
    EXPECT_EQ(read.model.intermediate_size, plan.model.intermediate_size);
    EXPECT_EQ(read.model.head_dim, plan.model.head_dim);
    EXPECT_EQ(read.model.rms_norm_eps, plan.model.rms_norm_eps);
    EXPECT_EQ(read.model.rope.type, RopeType::llama3);
    EXPECT_EQ(read.model.rope.factor, plan.model.rope.factor);
    EXPECT_EQ(read.model.rope.low_freq_factor, plan.model.rope.low_freq_factor);
    EXPECT_EQ(read.model.rope.high_freq_factor, plan.model.rope.high_freq_factor);
    EXPECT_EQ(read.model.rope.original_max_position, 4096);
    EXPECT_TRUE(read.model.qk_norm && read.model.tie_word_embeddings && !read.model.qkv_bias);
    EXPECT_EQ(read.backend, BackendKind::cuda);
    EXPECT_EQ(read.compute, DType::bf16);
    EXPECT_EQ(read.weights, WeightFormat::bf16);
    EXPECT_EQ(read.replicas[0].saved_columns, plan.replicas[0].saved_columns);
    EXPECT_EQ(read.adapters[1].name, "true");
    EXPECT_EQ(read.adapters[1].group_samples, 2);
    EXPECT_EQ(read.adapters[2].name, "1e3");
    EXPECT_EQ(read.memory[0].weights, plan.memory[0].weights);
    EXPECT_EQ(read.memory[1].engine, 77U);
    EXPECT_EQ(read.replicas[0].recompute, Recompute::layer);
    EXPECT_EQ(read.samples.longest, 12);
    EXPECT_EQ(read.samples.shortest, 3);
    EXPECT_EQ(read.samples.per_round, 45);
    EXPECT_EQ(read.bytes_per_rank, 9876543210U);
    EXPECT_EQ(read.fitting.none, 100);
    EXPECT_EQ(read.fitting.layer, 2000);
    EXPECT_EQ(read.costs.layer_forward.fixed, 0.1 + 0.2);
    EXPECT_EQ(read.costs.layer_forward.per_token, 1e-300);
    EXPECT_EQ(read.costs.layer_forward.per_square, 1.0 / 3.0);
    EXPECT_EQ(read.costs.layer_backward.per_token, 5);
    EXPECT_EQ(read.costs.first_layer_saving, 0.7);
    EXPECT_EQ(read.costs.head.per_square, 9);
    EXPECT_EQ(read.costs.step_per_parameter, 10);
    EXPECT_EQ(read.costs.step_fixed, 11);
    EXPECT_EQ(read.costs.message_fixed, 12);
    EXPECT_EQ(read.costs.message_per_byte, 13);
    EXPECT_EQ(read.costs.full_speed_ranks, 1.5);
    EXPECT_EQ(read.costs.ranks_per_host, 4);
    EXPECT_EQ(read.costs.source, "\"x\": #");
    EXPECT_EQ(read.replicas[0].stages[1].first_layer, 1);
    EXPECT_TRUE(read.replicas[0].stages[1].has_head);
    EXPECT_TRUE(read.replicas[0].stages[0].first_layer_adapters.is_all());
    EXPECT_EQ(read.replicas[0].stages[0].last_layer_adapters, AdapterSpan{2});
    EXPECT_EQ(read.replicas[0].stages[1].first_layer_adapters, (AdapterSpan{0, 2}));
    EXPECT_TRUE(read.replicas[0].stages[1].last_layer_adapters.is_all());
    EXPECT_EQ(to_text(read), to_text(plan));
}

TEST(PlanText, ReadsThePrecisionOfPlansOfBefore) {
    const std::string now = "compute: bf16\nweight_format: bf16\n";
    for (const auto& [backend, compute] :
         {std::pair("cuda", DType::bf16), std::pair("cpu", DType::f32)}) {
        std::string text = to_text(odd_plan());
        text.replace(text.find("backend: cuda"), 13, cat("backend: ", backend));
        text.replace(text.find(now), now.size(), "precision: bf16\n");
        EXPECT_EQ(plan_from_text(text).compute, compute);
        EXPECT_EQ(plan_from_text(text).weights, WeightFormat::bf16);
        text.replace(text.find("precision: bf16"), 15, "precision: fp32");
        EXPECT_EQ(plan_from_text(text).compute, DType::f32);
        EXPECT_EQ(plan_from_text(text).weights, WeightFormat::f32);
    }
}

TEST(PlanText, RefusesWhatItDidNotWrite) {
    const std::string good = to_text(odd_plan());
    const auto with = [](std::string text, const std::string& from, const std::string& to) {
        return text.replace(text.find(from), from.size(), to);
    };
    EXPECT_THROW(plan_from_text("[1, 2"), Error);
    EXPECT_THROW(plan_from_text("7"), Error);
    EXPECT_THROW(plan_from_text(with(good, "backend: cuda", "backend: gpu")), Error);
    EXPECT_THROW(plan_from_text(with(good, "compute: bf16", "compute: bf8")), Error);
    EXPECT_THROW(plan_from_text(with(good, "weight_format: bf16", "weight_format: bf8")), Error);
    EXPECT_THROW(plan_from_text(with(good, "weight_format: bf16\n", "")), Error);
    EXPECT_THROW(plan_from_text(with(good, "max_in_flight: ", "max_in_flight: x")), Error);
    EXPECT_THROW(plan_from_text(with(good, "qk_norm: true", "qk_norm: 1")), Error);
    EXPECT_THROW(plan_from_text(with(good, "pad_columns", "columns")), Error);
    EXPECT_THROW(plan_from_text(with(good, "last_layer_adapters: [2, ", "last_layer_adapters: [")),
                 Error);
    EXPECT_THROW(plan_from_text(with(good, "first_layer_adapters", "adapters")), Error);
}

}  // namespace loratrain::plan_test
