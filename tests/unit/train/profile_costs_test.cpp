#include "train/profile_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/system.h"
#include "plan/cost_model.h"
#include "unit/model/small_stage.h"

namespace loratrain {
namespace {

using test::small_adapter;
using test::small_model;
using test::SmallCase;

ModelSpec medium_model() {
    ModelSpec model = small_model();
    model.hidden_size = 128;
    model.intermediate_size = 256;
    model.head_dim = 32;
    model.vocab_size = 2000;
    return model;
}

/// Seconds of a forward and a backward of the whole model, as it trains; median of some.
double measured_seconds(const SmallCase& test_case, std::int64_t tokens) {
    test::WholeStage whole(test_case);
    whole.microbatch.segments.resize(1);
    whole.microbatch.segments[0].samples = {{0, static_cast<std::int32_t>(tokens)}};
    whole.rule.scales = {1e-3F};
    whole.packed = pack_layout(whole.microbatch);
    whole.packed.token_ids.assign(static_cast<std::size_t>(tokens), 7);
    whole.packed.targets.assign(static_cast<std::size_t>(tokens), 9);
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) {
        const auto start = std::chrono::steady_clock::now();
        whole.forward_in_slot(0);
        whole.backward();
        times.push_back(seconds_since(start));
    }
    std::nth_element(times.begin(), times.begin() + 2, times.end());
    return times[2];
}

double predicted_seconds(const SmallCase& test_case, const CostModel& costs, std::int64_t tokens) {
    const StagePlan& stage = test_case.plan.replica.stages[0];
    const auto rows = static_cast<double>(tokens);
    const MicrobatchLoad load{tokens, rows * rows, tokens};
    return forward_seconds(costs, stage, load) +
           backward_seconds(costs, stage, load, Recompute::none);
}

class ProfileCosts : public testing::Test {
  protected:
    ProfileCosts() : test_case_(medium_model(), {small_adapter("a", 8), small_adapter("b", 4)}) {
        test_case_.job.parallel.microbatch_tokens = 512;
        test_case_.make_plan_again();
    }
    CostModel profile() { return profile_costs(test_case_.job, test_case_.plan, *backend_).costs; }

    SmallCase test_case_;
    std::unique_ptr<Backend> backend_ = make_backend("cpu", {1, 0});
};

TEST_F(ProfileCosts, CostsAreThoseOfTraining) {
    CostModel costs;
    double ratio = 0.0;
    // Other programs on the machine may slow down one of the two.
    for (int attempt = 0; attempt < 10 && (ratio < 0.3 || ratio > 5.0); ++attempt) {
        costs = profile();
        ratio = predicted_seconds(test_case_, costs, 512) / measured_seconds(test_case_, 512);
    }
    EXPECT_GT(ratio, 0.3);
    EXPECT_LT(ratio, 5.0);
    EXPECT_GT(costs.head.seconds(512, 0), 0.0);
    EXPECT_GT(costs.step_fixed + costs.step_per_parameter, 0.0);
    EXPECT_EQ(costs.source, "measured on " + backend_->description());
}

TEST_F(ProfileCosts, NothingStaysAllocated) {
    profile();
    const std::size_t before = backend_->memory().current;
    profile();
    EXPECT_EQ(backend_->memory().current, before);
}

TEST_F(ProfileCosts, NeedsNoFilesOfTheJob) {
    test_case_.job.adapters[0].init_from = "/nowhere";
    EXPECT_GT(profile().layer_forward.seconds(100, 1e4), 0.0);
}

}  // namespace
}  // namespace loratrain
