#include "plan/text/dry_run_text.h"

#include <gtest/gtest.h>

#include <sstream>

#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

struct Asked {
    Case test = uniform_case(3, 2, 20, 10, 8);
    Plan plan = test.plan();
    Cluster cluster = test.cluster;

    Asked() {
        cluster.ranks = 4;
        cluster.backend = BackendKind::cuda;
        cluster.device = "h100";
        plan.bytes_per_rank = std::uint64_t{77} << 30U;
        plan.memory = {MemoryPlan{}, MemoryPlan{}};
        plan.memory[1].weights = std::uint64_t{70} << 30U;
    }
    std::string text(std::optional<JobChange> change = std::nullopt) const {
        return describe(DryRunAnswer{cluster, plan, "[{tp: 2, pp: 2}]", 3600.0, std::move(change),
                                     "built in for h100", seen_error_text(plan, cluster)});
    }
};

}  // namespace

TEST(DryRunText, AnswersInFourLines) {
    const std::string text = Asked().text();
    for (const char* line :
         {"fits        yes, on 4 x h100 as [{tp: 2, pp: 2}]: fullest rank 70.0 of 77.0 GiB\n",
          "\ntime        1 h 0 min training, 4.00 GPU-hours, about 2.80 kWh (700 W a GPU)\n",
          "\nchange      nothing to change in the job file\n",
          "\ncertainty   costs built in for h100; whole runs were within 4%\n"}) {
        EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
    }
}

TEST(DryRunText, HasNoLineWiderThanATerminal) {
    Asked asked;
    asked.cluster.ranks_per_node = 2;
    asked.plan.memory[1].host = std::uint64_t{100} << 30U;
    std::istringstream lines(asked.text(JobChange{"parallel: {deployment: pipeline}\n", 1.25}));
    for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), terminal_columns) << line;
    }
}

TEST(DryRunText, ProposesAChange) {
    const Asked asked;
    EXPECT_NE(asked.text(JobChange{"parallel: {microbatch_tokens: 512}\n", 1.25})
                  .find("change      put this into the job file; then it is 1.25 x as fast:\n"
                        "parallel: {microbatch_tokens: 512}\n"),
              std::string::npos);
    const std::string text = asked.text(JobChange{"model: {residency: auto}\n", 0.0});
    EXPECT_EQ(
        text.rfind("fits        not as the job says, but with the change below on 4 x h100", 0),
        0U);
    EXPECT_NE(text.find("then it fits:\nmodel: {residency: auto}\n"), std::string::npos) << text;
}

TEST(DryRunText, SaysWhatIsNotKnown) {
    Asked asked;
    Asked experts;
    experts.plan.model.descriptions.front().mlp = ExpertSpec{8, 2, 32, true};
    EXPECT_NE(seen_error_text(experts.plan, experts.cluster).find("were within 2%"),
              std::string::npos);
    experts.plan.model.descriptions.front().mixer = DeltaNetSpec{2, 4, 8, 16};
    EXPECT_EQ(seen_error_text(experts.plan, experts.cluster),
              "the runs that checked them had no gated delta nets");
    asked.cluster.device = "l4";
    EXPECT_NE(asked.text().find("(72 W a GPU)"), std::string::npos);
    EXPECT_EQ(seen_error_text(asked.plan, asked.cluster), "no run has checked them");
    asked.cluster.device = "b200";
    EXPECT_NE(asked.text().find("GPU-hours, energy not known\n"), std::string::npos)
        << asked.text();
    asked.cluster.backend = BackendKind::cpu;
    asked.cluster.device = "cpu";
    asked.cluster.ranks = 1;
    asked.plan.bytes_per_rank = 0;
    const std::string text = asked.text();
    EXPECT_NE(text.find("yes, on 1 CPU rank: "), std::string::npos) << text;
    EXPECT_NE(text.find("what it has is not known"), std::string::npos) << text;
    EXPECT_NE(text.find("1.00 rank-hours, energy not known"), std::string::npos) << text;
    asked.cluster.costs = CostModel{};
    EXPECT_EQ(seen_error_text(asked.plan, asked.cluster), "") << "measured";
}

}  // namespace loratrain::plan_test
