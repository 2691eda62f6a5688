#include "plan/schedule/admission_rules.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/cost/cost_model.h"
#include "plan/memory/memory_model.h"
#include "plan/replica_view.h"
#include "plan/text/describe.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using Ids = std::vector<int>;

Ids numbers(const std::vector<AdapterId>& adapters) {
    Ids ids;
    for (const AdapterId adapter : adapters) ids.push_back(number(adapter));
    return ids;
}

/// A case with adapters of these ranks on two stages.
Case ranked_case(const std::vector<int>& ranks) {
    Case test = uniform_case(static_cast<int>(ranks.size()), 2, 8, 10, 4);
    for (std::size_t a = 0; a < ranks.size(); ++a) test.job.adapters[a].r = ranks[a];
    return test;
}

std::vector<AdapterClaim> fresh_claims(const Case& test) {
    return std::vector<AdapterClaim>(test.job.adapters.size());
}

/// Bytes of an adapter of rank `rank` on each of the two stages.
std::uint64_t bytes_of_rank(const Case& test, int rank) {
    AdapterJob adapter;
    adapter.r = rank;
    return adapter_bytes(adapter, test.model, 1);
}

/// The plan as it is when the adapters may take `room` on every stage.
Plan plan_with_room(const Case& test, std::uint64_t room) {
    Plan plan = test.plan();
    plan.bytes_per_rank = 1;
    for (MemoryPlan& memory : plan.memory) {
        memory = {};
        memory.weights = 1000;
    }
    plan.bytes_per_rank = 1000 + room;
    return plan;
}

}  // namespace

TEST(Admission, EverybodyWhereMemoryIsUnknown) {
    const Case test = ranked_case({8, 16, 8});
    EXPECT_EQ(numbers(admit(test.job, test.plan(), fresh_claims(test))), (Ids{0, 1, 2}));
}

TEST(Admission, HigherPriorityFirstThenBegunThenFirstCome) {
    Case test = ranked_case({8, 8, 8, 8, 8});
    test.job.adapters[3].priority = 5;
    test.job.adapters[1].priority = -1;
    std::vector<AdapterClaim> claims = fresh_claims(test);
    EXPECT_EQ(numbers(admission_order(test.job, claims)), (Ids{3, 0, 2, 4, 1}));
    claims[4].begun = true;
    claims[1].begun = true;
    EXPECT_EQ(numbers(admission_order(test.job, claims)), (Ids{3, 4, 0, 2, 1}));
    claims[3].speculation = 2;
    claims[0].speculation = 1;
    EXPECT_EQ(numbers(admission_order(test.job, claims)), (Ids{4, 2, 1, 0, 3})) << "after others";
    claims[3].unfinished = false;
    claims[0].unfinished = false;
    EXPECT_EQ(numbers(admission_order(test.job, claims)), (Ids{4, 2, 1}));
    for (AdapterClaim& claim : claims) claim.unfinished = false;
    EXPECT_EQ(numbers(admit(test.job, test.plan(), claims)), Ids{});
}

TEST(Admission, RowsCostWhatMicrobatchesCostWithoutAny) {
    const Case test = ranked_case({8});
    Plan plan = test.plan();
    const ReplicaPlan replica = plan.replicas.front();
    const CostModel costs = costs_of(only_replica(plan));
    const auto seconds = [&](std::int64_t tokens) {
        return slowest_seconds(costs, replica.stages, MicrobatchLoad{tokens, 0.0, tokens},
                               replica.recompute);
    };
    const double tokens = tokens_of_fixed_costs(plan) / static_cast<double>(replica.stages.size());
    ASSERT_GT(tokens, 0.0);
    EXPECT_NEAR(seconds(std::llround(1000 * tokens)), 1001 * seconds(0), 10 * seconds(0));
    plan.replicas.push_back(replica);
    EXPECT_DOUBLE_EQ(tokens_of_fixed_costs(plan),
                     2 * tokens * static_cast<double>(replica.stages.size()));
}

TEST(Admission, AsManyAsFitToTheByte) {
    const Case test = ranked_case({8, 16, 8});
    const std::uint64_t small = bytes_of_rank(test, 8);
    const std::uint64_t large = bytes_of_rank(test, 16);
    const auto admitted = [&](std::uint64_t room) {
        return numbers(admit(test.job, plan_with_room(test, room), fresh_claims(test)));
    };
    EXPECT_EQ(admitted(2 * small + large), (Ids{0, 1, 2}));
    EXPECT_EQ(admitted(2 * small + large - 1), (Ids{0, 1}));
    EXPECT_EQ(admitted(small + large - 1), (Ids{0}));
    EXPECT_EQ(adapter_room(plan_with_room(test, 77), 1), 77U);
}

TEST(Admission, ThoseThatAreThereTogetherFitToTheByte) {
    const Case test = ranked_case({8, 16, 8});
    const std::uint64_t all = 2 * bytes_of_rank(test, 8) + bytes_of_rank(test, 16);
    const std::vector<AdapterId> three{AdapterId{0}, AdapterId{1}, AdapterId{2}};
    EXPECT_TRUE(fit_together(test.job, plan_with_room(test, all), three));
    EXPECT_FALSE(fit_together(test.job, plan_with_room(test, all - 1), three));
    EXPECT_FALSE(fit_together(test.job, plan_with_room(test, 1), std::vector{AdapterId{0}}));
    EXPECT_TRUE(fit_together(test.job, test.plan(), three)) << "memory is unknown";
}

TEST(Admission, TheFullestStageDecides) {
    const Case test = ranked_case({8, 8});
    Plan plan = plan_with_room(test, 2 * bytes_of_rank(test, 8));
    EXPECT_EQ(numbers(admit(test.job, plan, fresh_claims(test))), (Ids{0, 1}));
    plan.memory[1].engine = 1;
    EXPECT_EQ(numbers(admit(test.job, plan, fresh_claims(test))), (Ids{0}));
}

TEST(Admission, SharedLayersCountWhereTheAdapterIs) {
    Case test = ranked_case({8, 8, 8});
    test.model = cheap_head_model(4);
    const auto bytes = [&](std::int64_t layers) {
        return adapter_bytes(test.job.adapters[0], test.model, layers);
    };
    const auto admitted = [&](std::int32_t divider, std::uint64_t room) {
        Plan plan = plan_with_room(test, room);
        share_first_layer(plan, 0, divider);
        return numbers(admit(test.job, plan, fresh_claims(test)));
    };
    EXPECT_EQ(admitted(1, bytes(3) + 2 * bytes(2)), (Ids{0, 1, 2}));
    EXPECT_EQ(admitted(1, bytes(3) + 2 * bytes(2) - 1), (Ids{0, 1}));
    EXPECT_EQ(admitted(1, bytes(3) + bytes(2) - 1), (Ids{0}));
    // Room for two of the three that have the third layer on the first stage.
    EXPECT_EQ(admitted(3, 3 * bytes(3) - 1), (Ids{0, 1}));
    EXPECT_EQ(admitted(3, 3 * bytes(3)), (Ids{0, 1, 2}));
}

TEST(Admission, NobodyIsPassedBy) {
    const Case test = ranked_case({8, 32, 8});
    const std::uint64_t room = bytes_of_rank(test, 32) + bytes_of_rank(test, 8) - 1;
    const Plan plan = plan_with_room(test, room);
    std::vector<AdapterClaim> claims = fresh_claims(test);
    EXPECT_EQ(numbers(admit(test.job, plan, claims)), (Ids{0}));  // not 2 beside it
    claims[0] = {false, true};
    EXPECT_EQ(numbers(admit(test.job, plan, claims)), (Ids{1}));
    claims[1] = {false, true};
    EXPECT_EQ(numbers(admit(test.job, plan, claims)), (Ids{2}));
}

TEST(Admission, AHigherPriorityPreempts) {
    Case test = ranked_case({8, 8});
    const Plan plan = plan_with_room(test, bytes_of_rank(test, 8));
    std::vector<AdapterClaim> claims = fresh_claims(test);
    claims[0].begun = true;
    EXPECT_EQ(numbers(admit(test.job, plan, claims)), (Ids{0}));
    test.job.adapters[1].priority = 1;
    EXPECT_EQ(numbers(admit(test.job, plan, claims)), (Ids{1}));
    claims[1] = {false, true};
    EXPECT_EQ(numbers(admit(test.job, plan, claims)), (Ids{0}));
}

TEST(Admission, RulesBoundTheNumber) {
    Case test = ranked_case({8, 8, 8});
    test.job.schedule.max_adapters = 2;
    EXPECT_EQ(numbers(admit(test.job, test.plan(), fresh_claims(test))), (Ids{0, 1}));
    EXPECT_EQ(numbers(test.plan().first_admitted), (Ids{0, 1}));
    for (const SchedulePolicy policy : {SchedulePolicy::sequential, SchedulePolicy::one_f_one_b}) {
        test.job.schedule.policy = policy;
        std::vector<AdapterClaim> claims = fresh_claims(test);
        EXPECT_EQ(numbers(admit(test.job, test.plan(), claims)), (Ids{0}));
        claims[2].begun = true;
        EXPECT_EQ(numbers(admit(test.job, test.plan(), claims)), (Ids{2}));
    }
}

TEST(FirstAdmission, MemoryIsPlannedForThoseAdmitted) {
    Case test = ranked_case({8, 16, 8});
    test.job.parallel.microbatch_tokens = 64;
    test.job.parallel.recompute = Recompute::none;
    const Plan all = test.plan();
    EXPECT_EQ(numbers(all.first_admitted), (Ids{0, 1, 2}));
    EXPECT_EQ(all.adapter_capacity, 3 + spare_adapters);
    EXPECT_EQ(all.memory[0].adapters, 2 * bytes_of_rank(test, 8) + bytes_of_rank(test, 16));
    const std::uint64_t needed = std::max(all.memory[0].total(), all.memory[1].total());
    test.cluster.bytes_per_rank = needed;
    EXPECT_EQ(numbers(test.plan().first_admitted), (Ids{0, 1, 2}));
    test.cluster.bytes_per_rank = needed - 1;
    const Plan two = test.plan();
    EXPECT_EQ(numbers(two.first_admitted), (Ids{0, 1}));
    EXPECT_EQ(two.memory[0].adapters, bytes_of_rank(test, 8) + bytes_of_rank(test, 16));
    EXPECT_EQ(numbers(admit(test.job, two, fresh_claims(test))), (Ids{0, 1}));
    const std::string text = described(test);
    EXPECT_NE(text.find("at once      2 of 3 adapters, the others wait: memory is full"),
              std::string::npos)
        << text;
}

TEST(FirstAdmission, RoomForTheLargestAloneIsKept) {
    Case test = ranked_case({8, 16, 8});
    test.job.parallel.microbatch_tokens = 64;
    test.job.parallel.recompute = Recompute::none;
    const Plan all = test.plan();
    std::uint64_t rest = 0;
    for (const MemoryPlan& memory : all.memory) {
        rest = std::max(rest, memory.total() - memory.adapters);
    }
    test.cluster.bytes_per_rank = rest + bytes_of_rank(test, 16);
    const Plan plan = test.plan();
    EXPECT_EQ(numbers(plan.first_admitted), (Ids{0}));
    EXPECT_EQ(plan.memory[0].adapters, bytes_of_rank(test, 16));
    --test.cluster.bytes_per_rank;
    EXPECT_NE(problems_of(test).find("1 B too little"), std::string::npos) << problems_of(test);
}

TEST(FirstAdmission, FewerAdaptersBeforeTinyMicrobatches) {
    Case test = uniform_case(24, 1, 4000, 10, 400);
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 32;
    test.job.parallel.recompute = Recompute::none;
    const auto bytes = [&](std::int64_t tokens) {
        Case given = test;
        given.job.parallel.microbatch_tokens = tokens;
        return given.plan().memory[0].total();
    };
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 2048);
    // All fit with microbatches of one sample: as many tokens as that leaves.
    test.cluster.bytes_per_rank = bytes(10);
    EXPECT_EQ(test.plan().first_admitted.size(), 24U);
    EXPECT_EQ(test.plan().replicas[0].microbatch_tokens, 10);
    // They do not: fewer adapters, so that a fair microbatch fits beside them.
    --test.cluster.bytes_per_rank;
    const Plan fewer = test.plan();
    EXPECT_LT(fewer.first_admitted.size(), 24U);
    EXPECT_GT(fewer.first_admitted.size(), 12U);
    EXPECT_GE(fewer.replicas[0].microbatch_tokens, 2048 / 8);
    EXPECT_LE(fewer.memory[0].total(), test.cluster.bytes_per_rank);
}

TEST(FirstAdmission, ByPriority) {
    Case test = ranked_case({8, 8, 8});
    test.job.adapters[2].priority = 3;
    test.job.schedule.policy = SchedulePolicy::sequential;
    EXPECT_EQ(numbers(test.plan().first_admitted), (Ids{2}));
}

}  // namespace loratrain::plan_test
