#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "config/model_presets.h"
#include "plan/sweep/compare_sweep.h"
#include "plan/sweep/job_planner.h"
#include "unit/plan/sweep_fixtures.h"

namespace loratrain::plan_test {

namespace {

constexpr std::int64_t enough_nodes = 1'000'000;

std::vector<double> random_values(std::uint64_t seed, std::size_t count) {
    Draw draw(seed);
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i) values.push_back(draw.between(8'000, 128'000) / 1e3);
    return values;
}

double value_of(const ClassCounts& counts, const std::vector<double>& values) {
    return std::inner_product(counts.begin(), counts.end(), values.begin(), 0.0);
}

bool fits_together(const SweepReplica& replica, const ClassCounts& counts) {
    std::uint64_t bytes = 0;
    for (std::size_t c = 0; c < counts.size(); ++c) {
        bytes += replica.classes[c].bytes * static_cast<std::uint64_t>(counts[c]);
    }
    return replica.holds(bytes);
}

/// F(D, K) by trying every set of trials.
PackedJob packed_by_trying(const SweepReplica& replica, const ClassCounts& counts,
                           const std::vector<double>& values) {
    PackedJob best;
    for_each_choice(counts, [&](const ClassCounts& choice) {
        if (queue_of(choice).empty() || !fits_together(replica, choice)) return;
        const PackedJob job{choice, value_of(choice, values), packed_seconds(replica, choice)};
        if (job.rate() > best.rate()) best = job;
    });
    return best;
}

/// The best rate of jobs on non-increasing degrees, each as packed_by_trying has it.
double policy_by_trying(const std::vector<SweepReplica>& degrees, const ClassCounts& counts,
                        const std::vector<double>& values, int free, std::size_t first) {
    double best = 0.0;
    for (std::size_t d = first; d < degrees.size(); ++d) {
        if (degrees[d].ranks() > free) continue;
        const PackedJob job = packed_by_trying(degrees[d], counts, values);
        if (job.counts.empty()) continue;
        best = std::max(best, job.rate() + policy_by_trying(degrees, difference(counts, job.counts),
                                                            values, free - degrees[d].ranks(), d));
    }
    return best;
}

/// The replica on 4, 2 and 1 ranks: faster, with more room.
std::vector<SweepReplica> degrees_from(const SweepReplica& one) {
    std::vector<SweepReplica> degrees;
    for (const std::int32_t ranks : {4, 2, 1}) {
        SweepReplica replica = one;
        replica.tensor = ranks;
        replica.room *= static_cast<std::uint64_t>(ranks);
        const double faster = std::pow(ranks, -0.8);
        for (double& seconds : replica.fixed) seconds *= faster;
        for (TrialCosts& trial : replica.classes) {
            for (double& seconds : trial.rows) seconds *= faster;
        }
        degrees.push_back(replica);
    }
    return degrees;
}

}  // namespace

TEST(Knapsack, FindsWhatExhaustionFinds) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Draw draw(seed);
        Knapsack problem;
        ClassCounts counts;
        for (int i = draw.between(1, 5); i > 0; --i) {
            counts.push_back(draw.between(0, 3));
            problem.items.push_back({draw.between(-20, 100) / 7.0, draw.between(0, 60) / 100.0,
                                     draw.between(0, 60) / 100.0, counts.back()});
        }
        double best = 0.0;
        for_each_choice(counts, [&](const ClassCounts& choice) {
            double value = 0.0;
            double first = 0.0;
            double second = 0.0;
            for (std::size_t i = 0; i < choice.size(); ++i) {
                value += choice[i] * problem.items[i].value;
                first += choice[i] * problem.items[i].first;
                second += choice[i] * problem.items[i].second;
            }
            if (first <= 1.0 + 1e-9 && second <= 1.0 + 1e-9) best = std::max(best, value);
        });
        const KnapsackSolution found = solve_knapsack(problem, 0.0, enough_nodes);
        EXPECT_NEAR(found.value, best, 1e-9) << "seed " << seed;
        EXPECT_EQ(found.counts.empty(), best == 0.0);
        EXPECT_TRUE(solve_knapsack(problem, best + 1e-6, enough_nodes).counts.empty());
    }
}

TEST(PackJob, FindsWhatExhaustionFinds) {
    for (std::uint64_t seed = 0; seed < 150; ++seed) {
        const SweepReplica replica = random_replica(seed, 2, 5);
        const ClassCounts counts = random_counts(seed, replica, 12);
        const std::vector<double> values = random_values(seed, counts.size());
        const PackedJob found = pack_job(replica, counts, values, enough_nodes);
        const PackedJob best = packed_by_trying(replica, counts, values);
        ASSERT_EQ(found.counts.size(), counts.size()) << "seed " << seed;
        EXPECT_TRUE(fits_together(replica, found.counts));
        EXPECT_NEAR(found.rate(), best.rate(), 1e-7 * best.rate()) << "seed " << seed;
        EXPECT_DOUBLE_EQ(found.seconds, packed_seconds(replica, found.counts));
        EXPECT_DOUBLE_EQ(found.value, value_of(found.counts, values));
    }
}

TEST(PackJob, HasNoJobForNothing) {
    SweepReplica replica = random_replica(5, 1, 3);
    const std::vector<double> values(replica.classes.size(), 8.0);
    EXPECT_TRUE(pack_job(replica, ClassCounts(values.size(), 0), values).counts.empty());
    replica.room = 1;
    EXPECT_TRUE(pack_job(replica, ClassCounts(values.size(), 2), values).counts.empty());
}

TEST(JobPlanner, PolicyHasTheRateOfEnumeration) {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const SweepReplica one = random_replica(seed, 1, 4);
        const std::vector<SweepReplica> degrees = degrees_from(one);
        const ClassCounts counts = random_counts(seed, one, 9);
        const std::vector<double> values = random_values(seed, counts.size());
        const int free = 1 + static_cast<int>(seed % 5);
        const JobPolicy policy = throughput_policy(degrees, counts, values, free);
        const double best = policy_by_trying(degrees, counts, values, free, 0);
        EXPECT_NEAR(policy.rate(), best, 1e-7 * best) << "seed " << seed;
        int used = 0;
        for (const auto& entry : policy.jobs) used += degrees[entry.degree].ranks();
        EXPECT_LE(used, free);
        EXPECT_TRUE(
            std::is_sorted(policy.jobs.begin(), policy.jobs.end(),
                           [](const auto& a, const auto& b) { return a.degree < b.degree; }));
    }
}

TEST(JobPlanner, TrainsEveryTrialOnceOnFreeRanks) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        const SweepReplica one = random_replica(seed, 1, 5);
        const std::vector<SweepReplica> degrees = degrees_from(one);
        const ClassCounts counts = random_counts(seed, one, 20);
        const std::vector<double> values = random_values(seed, counts.size());
        constexpr int ranks = 5;
        const JobSchedule schedule = plan_jobs(degrees, {}, counts, values, ranks);
        ClassCounts left = counts;
        for (const ScheduledJob& job : schedule.jobs) {
            left = difference(left, job.counts);
            int busy = 0;
            for (const ScheduledJob& other : schedule.jobs) {
                const bool then = other.start <= job.start && job.start < other.end;
                if (then) busy += degrees[other.degree].ranks();
            }
            EXPECT_LE(busy, ranks) << "seed " << seed;
            EXPECT_LE(job.end, schedule.seconds);
        }
        EXPECT_EQ(left, ClassCounts(counts.size(), 0));
        EXPECT_GE(schedule.ar, 1.0);
    }
}

TEST(JobPlanner, RefusesTrialsThatFitNowhere) {
    SweepReplica one = random_replica(2, 1, 2);
    one.room = 1;
    const std::vector<double> values(one.classes.size(), 1.0);
    EXPECT_THROW(plan_jobs(std::vector{one}, {}, ClassCounts(values.size(), 1), values, 2), Error);
}

TEST(SweepBaselines, PutTheLongestTrialFirst) {
    const std::vector<double> alone{3.0, 5.0, 2.0};
    EXPECT_DOUBLE_EQ(alone_makespan(alone, ClassCounts{2, 1, 2}, 2), 8.0);
    EXPECT_DOUBLE_EQ(alone_makespan(alone, ClassCounts{2, 1, 2}, 1), 15.0);
    EXPECT_DOUBLE_EQ(alone_makespan(alone, ClassCounts{2, 1, 2}, 9), 5.0);
}

TEST(SweepBaselines, EagerStepsAreThoseMeasured) {
    Cluster cluster;
    cluster.backend = BackendKind::cuda;
    cluster.device = "h200";
    const ModelSpec model = *model_preset("llama-3.1-8b");
    EXPECT_DOUBLE_EQ(*eager_step_seconds(model, cluster, 45.0), 0.096);
    // Peers of 512 to 2048 tokens at batch 1: 95, 134 and 239 ms.
    EXPECT_NEAR(*eager_step_seconds(model, cluster, 512.0), 0.0952, 0.002);
    EXPECT_NEAR(*eager_step_seconds(model, cluster, 1024.0), 0.1336, 0.003);
    EXPECT_NEAR(*eager_step_seconds(model, cluster, 2048.0), 0.2394, 0.004);
    cluster.device = "a100";
    EXPECT_GT(*eager_step_seconds(model, cluster, 2048.0), 0.4);
    cluster.backend = BackendKind::cpu;
    EXPECT_FALSE(eager_step_seconds(model, cluster, 45.0));
}

}  // namespace loratrain::plan_test
