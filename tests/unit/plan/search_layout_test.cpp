#include "plan/search_layout.h"

#include <gtest/gtest.h>

#include <chrono>

#include "plan/cost_model.h"
#include "plan/fit_memory.h"
#include "plan/predict.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// A model of billions of parameters, so that fixed costs count little.
ModelSpec large_model() {
    ModelSpec model = small_model(32);
    model.vocab_size = 128256;
    model.hidden_size = 4096;
    model.intermediate_size = 14336;
    model.heads = 32;
    model.kv_heads = 8;
    model.head_dim = 128;
    return model;
}

/// Samples of 20 to `longest` tokens, the short ones frequent.
std::vector<SampleInfo> mixed_samples(std::size_t count, std::int32_t longest) {
    std::vector<SampleInfo> samples;
    for (std::size_t i = 0; i < count; ++i) {
        const auto part = static_cast<std::int32_t>((i * 37) % 100);
        const std::int32_t tokens = 20 + (longest - 20) * part * part / (99 * 99);
        samples.push_back({tokens, tokens / 2});
    }
    return samples;
}

Case gpu_case(int adapters, int ranks, int batch, std::int32_t longest) {
    Case test = uniform_case(adapters, ranks, 1, 10, batch);
    test.model = large_model();
    test.datasets[0].train = mixed_samples(400, longest);
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "h200";
    return test;
}

double seconds_with(Case test, std::int64_t tokens) {
    test.job.parallel.microbatch_tokens = tokens;
    const Plan plan = test.plan();
    return predict(test.job, plan, test.datasets, 6).seconds;
}

}  // namespace

TEST(SearchLayout, TakesAFasterSizeThanTheUsual) {
    const Case test = gpu_case(4, 4, 16, 4000);
    const std::int64_t found = test.plan().microbatch_tokens;
    EXPECT_NE(found, 8192);
    EXPECT_GE(found, 4000);
    EXPECT_LE(found, 10240);
    EXPECT_LT(seconds_with(test, found), 0.99 * seconds_with(test, 8192));
    EXPECT_EQ(test.plan().microbatch_tokens, found);
}

TEST(SearchLayout, KeepsWhatIsGivenOrNeedsNoSearch) {
    Case given = gpu_case(4, 4, 16, 4000);
    given.job.parallel.microbatch_tokens = 9000;
    EXPECT_EQ(given.plan().microbatch_tokens, 9000);
    EXPECT_EQ(gpu_case(4, 1, 16, 4000).plan().microbatch_tokens, 8192);
    // A round of a group fits into one microbatch: the size is that of the largest round.
    const Case small = gpu_case(4, 4, 4, 400);
    EXPECT_EQ(small.plan().microbatch_tokens, 1600);
}

TEST(SearchLayout, DoesNotLookAtMeasuredCosts) {
    Case test = gpu_case(4, 4, 16, 4000);
    const std::int64_t found = test.plan().microbatch_tokens;
    test.cluster.costs = built_in_costs(test.model, Precision::bf16, "h200");
    test.cluster.costs->head.per_token *= 20.0;
    EXPECT_NE(test.plan().replica.stages[3].layer_count, 8);
    EXPECT_EQ(test.plan().microbatch_tokens, found);
}

TEST(SearchLayout, StaysWithinMemoryAndAboveTheLongestSample) {
    for (const std::int32_t longest : {600, 3000, 7900}) {
        Case test = gpu_case(4, 4, 32, longest);
        for (const std::uint64_t gigabytes : {0, 24, 40, 80}) {
            test.cluster.bytes_per_rank = gigabytes << 30U;
            const Plan plan = test.plan();
            EXPECT_GE(plan.microbatch_tokens, longest);
            EXPECT_TRUE(fits_memory(test.job, plan, plan.microbatch_tokens, plan.recompute));
        }
    }
}

TEST(SearchLayout, TakesLittleTime) {
    Case test = gpu_case(64, 8, 64, 2000);
    const auto start = std::chrono::steady_clock::now();
    const Plan plan = test.plan();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    EXPECT_LT(taken.count(), 5.0);  // well below a second in a release build
    EXPECT_GT(plan.microbatch_tokens, 0);
}

}  // namespace loratrain::plan_test
