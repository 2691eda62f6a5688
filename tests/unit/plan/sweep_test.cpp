#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "config/model_presets.h"
#include "plan/milp.h"
#include "plan/predict/predict.h"
#include "plan/sweep/assign_trials.h"
#include "plan/sweep/compare_sweep.h"
#include "plan/sweep/sweep_bounds.h"
#include "plan/sweep/sweep_shapes.h"
#include "plan/sweep/worker_queues.h"
#include "plan/text/describe_prediction.h"
#include "unit/plan/sweep_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Of a round by trying every number of microbatches.
double round_by_trying(const SweepReplica& replica, const std::vector<std::int32_t>& classes) {
    double tokens = 0.0;
    double samples = 0.0;
    for (const std::int32_t c : classes) {
        tokens += replica.classes[static_cast<std::size_t>(c)].tokens;
        samples += replica.classes[static_cast<std::size_t>(c)].samples;
    }
    const auto least = static_cast<int>(
        std::max(1.0, std::ceil(tokens / static_cast<double>(replica.microbatch_tokens) - 1e-9)));
    double best = std::numeric_limits<double>::max();
    for (int m = least; m <= std::max(least, static_cast<int>(samples)); ++m) {
        double depth = replica.messages;
        double busy = 0.0;
        for (std::size_t s = 0; s < replica.fixed.size(); ++s) {
            double rows = 0.0;
            double step = 0.0;
            for (const std::int32_t c : classes) {
                rows += replica.classes[static_cast<std::size_t>(c)].rows[s];
                step += replica.classes[static_cast<std::size_t>(c)].step[s];
            }
            depth += replica.fixed[s] + rows / m;
            busy = std::max(busy, m * replica.fixed[s] + rows + step);
        }
        best = std::min(best, std::max(busy, depth));
    }
    return best;
}

/// Of a pipeline, from what round_by_trying's first number of microbatches has.
double drain_by_trying(const SweepReplica& replica, const std::vector<std::int32_t>& classes) {
    if (replica.fixed.size() == 1) return 0.0;
    ResidentTrials resident(replica);
    for (const std::int32_t c : classes) {
        resident.add(replica.classes[static_cast<std::size_t>(c)]);
    }
    return drain_seconds(replica, resident);
}

/// Round by round, one trial after the other.
class RoundWalk {
  public:
    RoundWalk(const SweepReplica& replica, const SweepRules& rules, const ClassCounts& counts)
        : replica_(replica), rules_(rules), waiting_(queue_of(counts)) {}

    double run() {
        while (!waiting_.empty() || !training_.empty()) {
            if (rules_.refills || training_.empty()) admit();
            std::vector<std::int32_t> classes;
            for (const Trial& trial : training_) classes.push_back(trial.of_class);
            seconds_ += round_by_trying(replica_, classes);
            bool any = false;
            for (Trial& trial : training_) any = advance(trial) || any;
            if (any) seconds_ += drain_by_trying(replica_, classes);
            std::erase_if(training_, [&](const Trial& trial) {
                return trial.steps == costs(trial.of_class).steps;
            });
        }
        return seconds_;
    }

  private:
    struct Trial {
        std::int32_t of_class = 0;
        std::int32_t steps = 0;
    };

    const TrialCosts& costs(std::int32_t c) const {
        return replica_.classes[static_cast<std::size_t>(c)];
    }

    void admit() {
        while (!waiting_.empty()) {
            std::uint64_t bytes = costs(waiting_.front()).bytes;
            for (const Trial& trial : training_) bytes += costs(trial.of_class).bytes;
            if (!training_.empty() && replica_.room > 0 && bytes > replica_.room) return;
            training_.push_back({waiting_.front(), 0});
            waiting_.erase(waiting_.begin());
        }
    }

    /// Whether it is at a rung or its end.
    bool advance(Trial& trial) {
        const TrialCosts& its = costs(trial.of_class);
        ++trial.steps;
        const bool ends = trial.steps == its.steps;
        const bool rung = std::count(its.rungs.begin(), its.rungs.end(), trial.steps) > 0;
        if (ends && rules_.evaluates) seconds_ += its.evaluation;
        if (rung && rules_.evaluates) seconds_ += its.rung_evaluation;
        if (ends && rules_.export_bytes_per_second > 0) {
            seconds_ += static_cast<double>(its.export_bytes) / rules_.export_bytes_per_second;
        }
        return ends || rung;
    }

    const SweepReplica& replica_;
    const SweepRules& rules_;
    std::vector<std::int32_t> waiting_;
    std::vector<Trial> training_;
    double seconds_ = 0.0;
};

SweepRules random_rules(std::uint64_t seed) {
    Draw draw(seed);
    SweepRules rules;
    rules.evaluates = !draw.one_in(3);
    if (draw.one_in(2)) rules.export_bytes_per_second = 100.0;
    rules.refills = !draw.one_in(3);
    return rules;
}

/// The least makespan over all ways of giving the trials to the replicas.
double least_makespan(const SweepReplica& replica, const SweepRules& rules,
                      const ClassCounts& counts, int replicas) {
    const double own = sweep_seconds(replica, rules, queue_of(counts));
    if (replicas == 1) return own;
    double best = own;
    for_each_choice(counts, [&](const ClassCounts& choice) {
        const double first = sweep_seconds(replica, rules, queue_of(choice));
        if (first >= best) return;
        const double others =
            least_makespan(replica, rules, difference(counts, choice), replicas - 1);
        best = std::min(best, std::max(first, others));
    });
    return best;
}

/// Four ranks of a CPU, trials of two datasets with unlike ranks, batches and ends.
Case sweep_case(int trials) {
    Case test = uniform_case(trials, 4, 60, 24, 2);
    test.model = cheap_head_model(8);
    test.job.datasets.push_back(test.job.datasets.front());
    test.job.datasets.back().name = "other";
    test.datasets.push_back({equal_samples(33, 9), equal_samples(5, 7)});
    test.datasets.back().train.front() = {64, 40};
    for (int a = 0; a < trials; ++a) {
        AdapterJob& adapter = test.job.adapters[static_cast<std::size_t>(a)];
        adapter.dataset = DatasetId{a % 2};
        adapter.r = 4 << (a % 3);
        adapter.global_batch_size = 1 + a % 4;
        adapter.num_train_epochs = a % 5 == 0 ? 2.0 : 1.0;
    }
    test.cluster.ranks_per_node = 4;
    return test;
}

/// Trials of these classes in replicas that are drawn anew again and again.
double seconds_of_moving(const SweepReplica& replica, const ClassCounts& counts, int replicas,
                         std::mt19937& draw) {
    std::vector<std::pair<std::int32_t, std::int32_t>> left;  // class, steps
    for (std::size_t c = 0; c < counts.size(); ++c) {
        const auto steps = replica.classes[c].steps;
        left.insert(left.end(), static_cast<std::size_t>(counts[c]),
                    {static_cast<std::int32_t>(c), steps});
    }
    double seconds = 0.0;
    while (!left.empty()) {
        std::vector<std::vector<std::size_t>> members(static_cast<std::size_t>(replicas));
        for (std::size_t t = 0; t < left.size(); ++t) {
            members[draw() % members.size()].push_back(t);
        }
        double longest = 0.0;
        for (const auto& of_replica : members) {
            ResidentTrials trials(replica);
            std::int32_t rounds = 1 + static_cast<std::int32_t>(draw() % 4);
            for (const std::size_t t : of_replica) {
                trials.add(replica.classes[static_cast<std::size_t>(left[t].first)]);
                rounds = std::min(rounds, left[t].second);
            }
            for (const std::size_t t : of_replica) left[t].second -= rounds;
            longest = std::max(longest, rounds * round_seconds(replica, trials));
        }
        seconds += longest;
        std::erase_if(left, [](const auto& trial) { return trial.second == 0; });
    }
    return seconds;
}

/// The sweep of the plan's adapters, in numbers and by simulating windows.
void expect_closed_near_simulated(const Case& test, const Plan& plan) {
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    const SweepReplica replica = sweep_replica(test.job, plan, trials);
    const double simulated = predict(test.job, plan, test.datasets, 16).seconds;
    const double closed = sweep_seconds(replica, {}, queue_of(trials.counts()));
    EXPECT_NEAR(closed, simulated, 0.02 * simulated);
}

Case three_small_adapters() {
    Case test = uniform_case(3, 1, 90, 24, 2);
    test.model = cheap_head_model(4);
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 16;
    return test;
}

}  // namespace

TEST(TrialLoad, IsTheMeanStepOfItsDataset) {
    Case test = sweep_case(3);
    test.job.adapters[1].global_batch_size = 4;
    test.job.adapters[1].max_steps = 100;
    test.job.adapters[2] = test.job.adapters[0];
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    ASSERT_EQ(trials.size(), 2u);
    EXPECT_EQ(trials.trials(), 3);
    EXPECT_EQ(trials.members[0], (std::vector{AdapterId{0}, AdapterId{2}}));
    EXPECT_EQ(trials.counts(), (ClassCounts{2, 1}));
    EXPECT_EQ(trials.loads[0].steps, 120);
    EXPECT_EQ(trials.loads[0].evaluation_tokens, 0);
    const TrialLoad& load = trials.loads[1];
    EXPECT_EQ(load.steps, 100);
    EXPECT_DOUBLE_EQ(load.samples, 33.0 / 9.0);
    EXPECT_DOUBLE_EQ(load.tokens, (64.0 + 32.0 * 9.0) / 9.0);
    EXPECT_DOUBLE_EQ(load.squares, (64.0 * 64.0 + 32.0 * 81.0) / 9.0);
    EXPECT_DOUBLE_EQ(load.targets, (40.0 + 32.0 * 8.0) / 9.0);
    EXPECT_EQ(load.evaluation_tokens, 35);
}

TEST(TrialLoad, RefusesTrialsWithoutStepsOrSamples) {
    Case test = sweep_case(2);
    test.job.adapters[0].num_train_epochs = 0.0;
    EXPECT_THROW(trial_classes(test.job, test.model, test.datasets), InputError);
    test = sweep_case(2);
    test.datasets[1].train.clear();
    EXPECT_THROW(trial_classes(test.job, test.model, test.datasets), InputError);
}

TEST(TrialLoad, EndsAtRungsAsHalvingDoes) {
    Case test = sweep_case(40);
    for (AdapterJob& adapter : test.job.adapters) {
        adapter.global_batch_size = 2;
        adapter.num_train_epochs = 1.0;
    }
    const TrialClasses all = trial_classes(test.job, test.model, test.datasets);
    const TrialClasses halved =
        expected_halving(test.job, test.datasets, all, HalvingRule{3, 3, 2});
    EXPECT_EQ(halved.trials(), 40);
    // 20 trials of each dataset, of 30 and 17 steps: 6 are left at the second rung, 2 at the end.
    std::map<std::int32_t, std::int64_t> trials_of;
    for (std::size_t c = 0; c < halved.size(); ++c) {
        const TrialLoad& load = halved.loads[c];
        trials_of[load.steps] += std::ssize(halved.members[c]);
        if (load.steps == 30) {
            EXPECT_EQ(load.rungs, (ClassCounts{4, 10}));
        }
        if (load.steps == 6) {
            EXPECT_EQ(load.rungs, ClassCounts{2});
        }
        if (load.steps == 2) {
            EXPECT_TRUE(load.rungs.empty());
        }
        const bool evaluated = load.evaluation_tokens > 0;
        EXPECT_DOUBLE_EQ(load.rung_share, evaluated ? 0.4 : 1.0);
    }
    const std::map<std::int32_t, std::int64_t> expected{{4, 14}, {10, 4}, {30, 2},
                                                        {2, 14}, {6, 4},  {17, 2}};
    EXPECT_EQ(trials_of, expected);
    EXPECT_EQ(expected_halving(test.job, test.datasets, all, HalvingRule{1, 3, 0}).loads,
              all.loads);
}

TEST(SimulateSweep, AgreesWithAWalkRoundByRound) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        const SweepReplica replica = random_replica(seed, 3, 5);
        const ClassCounts counts = random_counts(seed, replica, 12);
        const SweepRules rules = random_rules(seed);
        const QueueRun run = simulate_sweep(replica, rules, queue_of(counts));
        const double walked = RoundWalk(replica, rules, counts).run();
        ASSERT_NEAR(run.seconds, walked, 1e-9 * walked) << "seed " << seed;
        double last = 0.0;
        for (const TrialSpan& span : run.spans) {
            EXPECT_LT(span.begin, span.end);
            last = std::max(last, span.end);
        }
        EXPECT_DOUBLE_EQ(last, run.seconds);
    }
}

TEST(SimulateSweep, TakesNoTimeWithoutTrials) {
    const SweepReplica replica = random_replica(1, 2, 3);
    EXPECT_EQ(sweep_seconds(replica, {}, {}), 0.0);
    EXPECT_EQ(round_seconds(replica, ResidentTrials(replica)), 0.0);
}

TEST(SimulateSweep, AgreesWithTheSimulatorOfWindows) {
    Case test = uniform_case(6, 1, 90, 24, 2);
    test.model = cheap_head_model(4);
    for (std::size_t a = 0; a < test.job.adapters.size(); ++a) {
        test.job.adapters[a].r = 16;  // as costs are fitted
        test.job.adapters[a].global_batch_size = 1 + static_cast<int>(a % 3);
    }
    const Plan plan = test.plan();
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    const SweepReplica replica = sweep_replica(test.job, plan, trials);
    const double simulated = predict(test.job, plan, test.datasets, 16).seconds;
    const double closed = sweep_seconds(replica, {}, queue_of(trials.counts()));
    EXPECT_NEAR(closed, simulated, 0.05 * simulated);
}

TEST(SimulateSweep, AgreesWhereTheHostHoldsUpAGpu) {
    const Case test = three_small_adapters();
    Plan plan = test.plan();
    const double before = predict(test.job, plan, test.datasets, 16).seconds;
    plan.costs.host = {{1.0, 0.25}, {2.0, 0.25}, {0.5, 0.125}, {0.5, 0.0}, 0.5, {}, {}};
    expect_closed_near_simulated(test, plan);
    EXPECT_GT(predict(test.job, plan, test.datasets, 16).seconds, 100.0 * before);
}

TEST(SimulateSweep, AgreesWhereAdaptersTakeTimeWhateverTheirRows) {
    const Case test = three_small_adapters();
    Plan plan = test.plan();
    plan.costs.layer_forward.per_segment = 1.0;
    plan.costs.layer_backward.per_segment = 2.0;
    expect_closed_near_simulated(test, plan);
}

TEST(AssignTrials, ComesNearTheBestPartition) {
    const double most = milp_available() ? 1.03 : 1.2;
    double worst = 1.0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        const SweepReplica replica = random_replica(seed, seed % 3 == 0 ? 2 : 1, 4);
        const ClassCounts counts = random_counts(seed, replica, 8);
        const int replicas = seed % 4 == 0 ? 3 : 2;
        const double least = least_makespan(replica, {}, counts, replicas);
        const TrialAssignment found = assign_trials(replica, {}, counts, replicas);
        ASSERT_EQ(std::ssize(found.queues), replicas);
        std::vector<std::int32_t> all;
        for (std::size_t g = 0; g < found.queues.size(); ++g) {
            all.insert(all.end(), found.queues[g].begin(), found.queues[g].end());
            EXPECT_DOUBLE_EQ(found.seconds[g], sweep_seconds(replica, {}, found.queues[g]));
        }
        std::sort(all.begin(), all.end());
        EXPECT_EQ(all, queue_of(counts));
        EXPECT_GE(found.makespan(), least * (1.0 - 1e-9));
        EXPECT_LE(found.makespan(), most * least) << "seed " << seed;
        worst = std::max(worst, found.makespan() / least);
    }
    RecordProperty("worst", format_fixed(worst, 4));
}

TEST(AssignTrials, LeavesReplicasWithoutTrialsEmpty) {
    const SweepReplica replica = random_replica(3, 1, 1);
    const TrialAssignment found = assign_trials(replica, {}, ClassCounts{2}, 5);
    ASSERT_EQ(found.queues.size(), 5u);
    EXPECT_EQ(std::count_if(found.queues.begin(), found.queues.end(),
                            [](const auto& queue) { return queue.empty(); }),
              3);
}

TEST(SweepBounds, AreNeverAboveTheBestPartition) {
    for (std::uint64_t seed = 0; seed < 80; ++seed) {
        const SweepReplica replica = random_replica(seed, 3, 4);
        const ClassCounts counts = random_counts(seed, replica, 7);
        SweepRules rules = random_rules(seed);
        rules.refills = true;
        const int replicas = 1 + static_cast<int>(seed % 3);
        const double least = least_makespan(replica, rules, counts, replicas);
        const SweepBounds bounds = sweep_bounds(replica, rules, counts, replicas);
        EXPECT_LE(bounds.longest, least * (1.0 + 1e-9)) << "seed " << seed;
        EXPECT_LE(bounds.work, bounds.staying * (1.0 + 1e-9)) << "seed " << seed;
        EXPECT_LE(bounds.staying, least * (1.0 + 1e-9)) << "seed " << seed;
        EXPECT_GT(bounds.any(), 0.2 * least) << "seed " << seed;
    }
}

TEST(SweepBounds, HoldWhereTrialsMove) {
    std::mt19937 draw(3);
    SweepRules rules;
    rules.evaluates = false;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        SweepReplica replica = random_replica(seed, 1, 3);
        replica.room = 0;
        const ClassCounts counts = random_counts(seed, replica, 9);
        const int replicas = 1 + static_cast<int>(seed % 3);
        const double bound = sweep_bounds(replica, rules, counts, replicas).any();
        for (int i = 0; i < 5; ++i) {
            EXPECT_LE(bound, seconds_of_moving(replica, counts, replicas, draw) * (1.0 + 1e-9));
        }
    }
}

TEST(SweepBounds, OfTheLastJobIsTheTheorems) {
    // F = 10 on 8 ranks, the last job has 2 of them for the last 4 seconds.
    EXPECT_DOUBLE_EQ(last_job_bound(10.0, 8, 4.0, 2), 10.0 / (10.0 - 4.0 * 6.0 / 8.0));
    EXPECT_DOUBLE_EQ(last_job_bound(10.0, 8, 4.0, 8), 1.0);
    EXPECT_DOUBLE_EQ(ratio_bound(0.0, 8, 0.0), 1.0);
}

/// Layers of the base would have to stream on one of four A10.
TEST(MinGpu, HoldsTheWholeBase) {
    Case test = sweep_case(3);
    test.model = *model_preset("llama-3.1-8b");
    test.cluster.backend = BackendKind::cuda;
    test.cluster.device = "a10";
    test.cluster.bytes_per_rank = std::uint64_t{12} << 30;
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    const SweepTask task{test.job, test.model, test.datasets, test.cluster, trials, {}};
    SweepShapes shapes(task);
    const auto found = min_gpu(task, shapes);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->tensor * found->stages, 2);
}

TEST(DeploySweep, PlansEveryTrialOnceOnAllRanks) {
    const Case test = sweep_case(23);
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    const SweepTask task{test.job, test.model, test.datasets, test.cluster, trials, {}};
    const SweepComparison found = compare_sweep(task);
    const SweepPlan& plan = found.deployment.plan;
    EXPECT_EQ(plan.shape.ranks(), 4);
    std::set<AdapterId> planned;
    for (const auto& queue : plan.queues) planned.insert(queue.begin(), queue.end());
    EXPECT_EQ(planned.size(), 23u);
    EXPECT_EQ(std::ssize(plan.queues), plan.shape.replicas);
    EXPECT_DOUBLE_EQ(plan.seconds,
                     *std::max_element(plan.queue_seconds.begin(), plan.queue_seconds.end()));
    EXPECT_LE(plan.bound, plan.staying);
    EXPECT_LE(plan.staying, plan.seconds);
    EXPECT_GE(plan.ar, 1.0);
    for (std::size_t i = 0; i < found.deployment.options.size(); ++i) {
        const SweepOption& option = found.deployment.options[i];
        EXPECT_EQ(option.shape.ranks(), 4);
        EXPECT_LE(plan.seconds, 1.02 * option.seconds);
    }
    ASSERT_TRUE(found.min_gpu && found.max_gpu && found.packed_jobs && found.one_pipeline);
    EXPECT_EQ(found.min_gpu->replicas, 4);
    EXPECT_GE(found.packed_jobs->seconds, plan.bound);
    EXPECT_GE(found.min_gpu->seconds, plan.bound);
    EXPECT_FALSE(found.eager_peft) << "on CPUs";
    const std::string text = describe(found);
    EXPECT_NE(text.find("sweep of 23 trials"), std::string::npos) << text;
    EXPECT_NE(text.find("DTM and job planner"), std::string::npos) << text;
    EXPECT_NE(text.find("replica 0"), std::string::npos) << text;
}

TEST(WorkerQueues, HoldWhatIsLeftOnceAndBalanceIt) {
    Case test = uniform_case(9, 1, 60, 24, 2);
    test.job.adapters[4].priority = 1;
    std::vector<std::int32_t> left{30, 30, 30, 30, 3, 30, 30, 0, 30};
    const auto queued = [&](int workers) {
        return queue_for_workers(test.job, test.plan(), test.datasets, left, workers);
    };
    const WorkerQueues two = queued(2);
    std::vector<AdapterId> all;
    for (const auto& queue : two.queues) {
        EXPECT_GE(queue.size(), 3U);
        all.insert(all.end(), queue.begin(), queue.end());
        const auto first = std::find(queue.begin(), queue.end(), AdapterId{4});
        EXPECT_TRUE(first == queue.end() || first == queue.begin()) << "by priority";
    }
    std::sort(all.begin(), all.end());
    const std::vector<AdapterId> wanted{AdapterId{0}, AdapterId{1}, AdapterId{2}, AdapterId{3},
                                        AdapterId{4}, AdapterId{5}, AdapterId{6}, AdapterId{8}};
    EXPECT_EQ(all, wanted);
    const WorkerQueues one = queued(1);
    EXPECT_EQ(one.queues.front().size(), 8U);
    EXPECT_GT(one.seconds, two.seconds);
    EXPECT_LT(one.seconds, 2.2 * two.seconds);
    left.assign(9, 0);
    EXPECT_EQ(queued(3).seconds, 0.0);
    EXPECT_EQ(queued(3).queues, std::vector<std::vector<AdapterId>>(3));
}

TEST(WorkerQueues, PackJobsAsPlora) {
    Case test = uniform_case(9, 1, 60, 24, 2);
    test.job.parallel.assignment = Assignment::plora;
    for (std::size_t a = 0; a < 9; ++a) test.job.adapters[a].r = a < 3 ? 4 : 16;
    const std::vector<std::int32_t> left{30, 30, 30, 30, 3, 30, 30, 0, 30};
    const WorkerQueues two = queue_for_workers(test.job, test.plan(), test.datasets, left, 2);
    EXPECT_EQ(two.queues, std::vector<std::vector<AdapterId>>(2));
    EXPECT_GT(two.seconds, 0.0);
    std::vector<AdapterId> all;
    for (const auto& job : two.packed_jobs) {
        EXPECT_FALSE(job.empty());
        all.insert(all.end(), job.begin(), job.end());
    }
    std::sort(all.begin(), all.end());
    const std::vector<AdapterId> wanted{AdapterId{0}, AdapterId{1}, AdapterId{2}, AdapterId{3},
                                        AdapterId{4}, AdapterId{5}, AdapterId{6}, AdapterId{8}};
    EXPECT_EQ(all, wanted);
}

/// Costs are fitted with adapters of rank 16, which take more there than the base does.
TEST(WorkerQueues, HoldAdaptersOfTinyModels) {
    Case test = uniform_case(4, 1, 60, 24, 2);
    test.model.hidden_size = 32;
    test.model.dense().size = 64;
    test.model.attention().heads = test.model.attention().kv_heads = 2;
    test.model.attention().head_dim = 16;
    for (AdapterJob& adapter : test.job.adapters) adapter.r = 1;
    const Plan plan = test.plan();
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    for (const TrialCosts& costs : sweep_replica(test.job, plan, trials).classes) {
        EXPECT_GE(costs.rows.front(), 0.0);
    }
    const std::vector<std::int32_t> left(4, plan.adapters.front().total_steps);
    const WorkerQueues two = queue_for_workers(test.job, plan, test.datasets, left, 2);
    EXPECT_EQ(two.queues[0].size() + two.queues[1].size(), 4U);
}

/// Measured costs may say that two trials take less than one.
TEST(AssignTrials, KeepsAllOfThemWhateverTheyCost) {
    SweepReplica replica = random_replica(1, 1, 1);
    replica.classes.resize(1);
    for (TrialCosts& costs : replica.classes) costs.rows.front() = -0.25 * replica.fixed.front();
    for (const std::int32_t replicas : {1, 2, 3}) {
        const TrialAssignment found = assign_trials(replica, {}, ClassCounts{4}, replicas);
        std::size_t trials = 0;
        for (const auto& queue : found.queues) trials += queue.size();
        EXPECT_EQ(trials, 4U) << replicas;
        EXPECT_EQ(std::ssize(found.queues), replicas);
    }
}

TEST(WorkerQueues, CountEvaluationsBeforeTheFirstStepAndAtTheEnd) {
    Case test = uniform_case(4, 1, 60, 24, 2);
    const auto seconds = [&](std::int32_t steps_of_first) {
        const Plan plan = test.plan();
        std::vector<std::int32_t> left(4, plan.adapters.front().total_steps);
        left.front() = steps_of_first;
        return queue_for_workers(test.job, plan, test.datasets, left, 1).seconds;
    };
    const double trained = seconds(3);
    test.datasets.front().eval = test.datasets.front().train;
    const double by_hand = seconds(3) - trained;
    EXPECT_GT(by_hand, 0.0);
    test.job.sweep.emplace();
    const double trials = seconds(3) - trained;
    EXPECT_NEAR(trials / 4.0, by_hand / 5.0, 1e-9) << "of a sweep, the first one's start is known";
    test.job.adapters.back().init_from = "elsewhere";
    EXPECT_NEAR((seconds(3) - trained) / 5.0, trials / 4.0, 1e-9) << "it starts like none";
}

TEST(WorkerQueues, CountNewShapesOfTheSlowestWorker) {
    Case test = uniform_case(4, 1, 60, 24, 2);
    Plan plan = test.plan();
    const std::vector<std::int32_t> left(4, plan.adapters.front().total_steps);
    const auto seconds = [&](const MetShapes& met = {}) {
        return queue_for_workers(test.job, plan, test.datasets, left, 2, met).seconds;
    };
    const double without = seconds();
    plan.costs.host.new_rows.each = 100.0;
    plan.costs.host.new_targets.each = 1000.0;
    // two adapters of two samples of 24 tokens: one class of rows and one of targets
    EXPECT_NEAR(seconds(), without + 1100.0, 1e-6 * without);
    MetShapes met;
    met.meet_rows(0, 2 * 2 * 24, 16, plan.costs.host.new_rows);
    EXPECT_NEAR(seconds(met), without + 1000.0, 1e-6 * without);
}

TEST(DeploySweep, WantsARankThatHoldsATrial) {
    Case test = sweep_case(3);
    test.cluster.bytes_per_rank = 4096;
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    EXPECT_THROW(deploy_sweep({test.job, test.model, test.datasets, test.cluster, trials, {}}),
                 InputError);
}

/// Also where such a trial is not among those that shapes are planned for.
TEST(DeploySweep, PlansNoReplicaThatCannotHoldATrial) {
    Case test = sweep_case(23);
    test.model.tie_word_embeddings = true;
    test.job.adapters.back().trainable_token_indices = {1};
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    const SweepTask task{test.job, test.model, test.datasets, test.cluster, trials, {}};
    using Cuts = std::vector<std::pair<std::int32_t, std::int32_t>>;
    EXPECT_EQ(SweepShapes(task).cuts(), (Cuts{{1, 1}}));
    for (const SweepOption& option : deploy_sweep(task).options) {
        EXPECT_EQ(option.shape.tensor * option.shape.stages, 1);
    }
    test.model.tie_word_embeddings = false;
    EXPECT_EQ(SweepShapes(task).cuts(), (Cuts{{1, 1}, {1, 2}, {1, 4}}));
}

TEST(DeploySweep, SaysWhatNoReplicaCanDo) {
    Case test = sweep_case(3);
    test.job.adapters.back().trainable_token_indices = {
        static_cast<std::int32_t>(test.model.vocab_size)};
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    try {
        deploy_sweep({test.job, test.model, test.datasets, test.cluster, trials, {}});
        FAIL() << "rows of tokens are trained that the embedding does not have";
    } catch (const InputError& error) {
        const std::string& what = error.problems().front().what;
        EXPECT_NE(what.find("is not one of the model's"), std::string::npos) << what;
    }
}

TEST(DeploySweep, TakesFewerTrialsAtATimeWhereMemoryIsShort) {
    Case test = sweep_case(12);
    const TrialClasses trials = trial_classes(test.job, test.model, test.datasets);
    const SweepTask task{test.job, test.model, test.datasets, test.cluster, trials, {}};
    const double free = deploy_sweep(task).plan.seconds;
    std::optional<SweepDeployment> found;
    for (test.cluster.bytes_per_rank = 100'000; !found; test.cluster.bytes_per_rank *= 2) {
        try {
            found = deploy_sweep(task);
        } catch (const InputError&) {
            ASSERT_LT(test.cluster.bytes_per_rank, 100'000'000u);
        }
    }
    const SweepDeployment& tight = *found;
    EXPECT_GT(tight.plan.seconds, free);
    EXPECT_GT(tight.replica.room, 0u);
    for (const TrialCosts& trial : tight.replica.classes) {
        EXPECT_TRUE(tight.replica.holds(trial.bytes));
    }
}

}  // namespace loratrain::plan_test
