#include "plan/deploy/check_precision.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "plan/plan.h"
#include "plan/tensor_shard.h"
#include "support/small_model.h"

namespace loratrain::test {
namespace {

std::vector<Problem> problems_of(const Job& job, const ModelSpec& model, BackendKind backend,
                                 const std::string& device = "") {
    Cluster cluster;
    cluster.backend = backend;
    cluster.device = device;
    Problems problems;
    check_precision(job, model, cluster, problems);
    return problems.list();
}

Job job_in(Precision precision) {
    Job job;
    job.path = "job.yaml";
    job.model.precision = precision;
    return job;
}

TEST(CheckPrecision, Fp8IsForGpus) {
    const auto problems = problems_of(job_in(Precision::fp8), small_model(), BackendKind::cpu);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_EQ(problems[0].where, "job.yaml: model.precision");
    EXPECT_NE(problems[0].what.find("fp8 is computed by GPUs alone"), std::string::npos);
    for (const Precision precision : {Precision::automatic, Precision::bf16, Precision::fp32}) {
        EXPECT_TRUE(problems_of(job_in(precision), small_model(), BackendKind::cpu).empty());
    }
}

TEST(CheckPrecision, Fp8IsForHopper) {
    const Job job = job_in(Precision::fp8);
    for (const char* device : {"a100", "a100-40", "l40s", "a6000", "a40", "a10", "l4"}) {
        const auto problems = problems_of(job, small_model(), BackendKind::cuda, device);
        ASSERT_EQ(problems.size(), 1U) << device;
        EXPECT_NE(
            problems[0].what.find(cat("needs a Hopper GPU, as h100 or h200, not '", device, "'")),
            std::string::npos);
        EXPECT_EQ(problems[0].hint, "use model.precision: bf16");
        EXPECT_TRUE(
            problems_of(job_in(Precision::bf16), small_model(), BackendKind::cuda, device).empty());
    }
    for (const char* device : {"", "h100", "h200", "NVIDIA B200"}) {
        EXPECT_TRUE(problems_of(job, small_model(), BackendKind::cuda, device).empty()) << device;
    }
}

TEST(CheckPrecision, Fp8ExpertsNeedMultiplesOf16) {
    const Job job = job_in(Precision::fp8);
    ModelSpec model = small_model();
    ExpertSpec experts{8, 2, 32, true};
    const auto problems = [&] {
        model.descriptions.front().mlp = experts;
        return problems_of(job, model, BackendKind::cuda);
    };
    EXPECT_TRUE(problems().empty());
    model.quantization = {WeightFormat::e4m3, SourceType::bf16};
    EXPECT_TRUE(problems().empty());
    experts.size = 40;
    ASSERT_EQ(problems().size(), 1U);
    EXPECT_NE(problems()[0].what.find("heads of 8, moe_intermediate_size 40"), std::string::npos)
        << problems()[0].what;
    experts.size = 32;
    experts.shared_size = 24;
    ASSERT_EQ(problems().size(), 1U);
    EXPECT_NE(problems()[0].what.find("shared expert size 24"), std::string::npos);
    EXPECT_TRUE(problems_of(job_in(Precision::bf16), model, BackendKind::cuda).empty());
}

TEST(CheckPrecision, Fp8ExpertsAreForHopperAlone) {
    const Job job = job_in(Precision::fp8);
    ModelSpec model = small_model();
    model.descriptions.front().mlp = ExpertSpec{8, 2, 32, true};
    for (const char* device : {"", "h100", "h200"}) {
        EXPECT_TRUE(problems_of(job, model, BackendKind::cuda, device).empty()) << device;
    }
    for (const char* device : {"NVIDIA B200", "a100", "l40s"}) {
        const auto problems = problems_of(job, model, BackendKind::cuda, device);
        ASSERT_EQ(problems.size(), 1U) << device;
        EXPECT_NE(problems[0].what.find(cat("not '", device, "'")), std::string::npos);
    }
}

TEST(CheckPrecision, Fp8NeedsMultiplesOf16) {
    const Job job = job_in(Precision::fp8);
    EXPECT_TRUE(problems_of(job, small_model(), BackendKind::cuda).empty());
    ModelSpec odd = small_model();
    odd.dense().size = 56;
    const auto problems = problems_of(job, odd, BackendKind::cuda);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_NE(problems[0].what.find("intermediate_size 56"), std::string::npos) << problems[0].what;
    EXPECT_TRUE(problems_of(job_in(Precision::bf16), odd, BackendKind::cuda).empty());
}

TEST(CheckPrecision, Fp8TakesNoCodesButItsOwn) {
    ModelSpec model = small_model();
    model.quantization = {WeightFormat::e4m3, SourceType::bf16};
    EXPECT_TRUE(problems_of(job_in(Precision::fp8), model, BackendKind::cuda).empty());
    for (const WeightFormat format :
         {WeightFormat::nf4, WeightFormat::int8, WeightFormat::e4m3_block}) {
        model.quantization->format = format;
        const auto problems = problems_of(job_in(Precision::fp8), model, BackendKind::cuda);
        ASSERT_EQ(problems.size(), 1U);
        EXPECT_NE(problems[0].what.find(traits_of(format).name), std::string::npos);
        EXPECT_TRUE(problems_of(job_in(Precision::bf16), model, BackendKind::cuda).empty());
    }
}

TEST(CheckPrecision, AlsoOnEveryLane) {
    Job job = job_in(Precision::fp8);
    job.parallel.deployment = {{2, 1, 1, {}}};
    ASSERT_TRUE(can_shard(small_model(), 2));
    const auto problems = problems_of(job, small_model(), BackendKind::cuda);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_NE(problems[0].what.find("with tp: 2 a rank has"), std::string::npos)
        << problems[0].what;
    ModelSpec wide = small_model();
    wide.attention().head_dim = 16;
    wide.dense().size = 96;
    EXPECT_TRUE(problems_of(job, wide, BackendKind::cuda).empty());
}

TEST(NumberTypes, Fp8IsAskedFor) {
    EXPECT_FALSE(number_types(Precision::automatic, BackendKind::cuda).fp8_linears);
    EXPECT_FALSE(number_types(Precision::bf16, BackendKind::cuda).fp8_linears);
    const NumberTypes types = number_types(Precision::fp8, BackendKind::cuda);
    EXPECT_TRUE(types.fp8_linears);
    EXPECT_EQ(types.compute, DType::bf16);
    EXPECT_EQ(types.weights, WeightFormat::bf16);
}

}  // namespace
}  // namespace loratrain::test
