#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "base/arithmetic.h"
#include "base/text.h"
#include "plan/deploy/replica_options.h"
#include "plan/memory/memory_model.h"
#include "plan/pack/pack_shares.h"
#include "plan/place.h"
#include "plan/predict/predict.h"
#include "plan/predict/simulate.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/schedule/window_fields.h"
#include "plan/text/plan_text.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

using Deployment = std::vector<ReplicaJob>;

/// The case with this deployment and as many ranks as it takes, and a model that it can cut.
Case deployed(Case test, const Deployment& deployment) {
    test.job.parallel.deployment = deployment;
    test.cluster.ranks = 0;
    for (const ReplicaJob& entry : deployment) {
        test.cluster.ranks += entry.tensor * entry.stages * entry.count;
    }
    test.model = cheap_head_model(4);
    test.model.vocab_size = 64;
    return test;
}

/// Samples of 4 to 40 tokens; a small replica takes 16.
Case mixed(const Deployment& deployment, int adapters = 3) {
    Case test = deployed(uniform_case(adapters, 1, 24, 8, 6), deployment);
    for (std::size_t i = 0; i < test.datasets[0].train.size(); ++i) {
        const auto tokens = static_cast<std::int32_t>(4 + 12 * (i % 4));
        test.datasets[0].train[i] = {tokens, tokens - 1};
    }
    test.job.parallel.microbatch_tokens = 64;
    return test;
}

const Deployment two_equal{{1, 1, 2, {}}};
const Deployment unlike{{1, 2, 1, {}}, {1, 1, 1, 16}};
const Deployment with_lanes{{1, 1, 2, 16}, {2, 1, 1, {}}};
const Deployment pipelines{{1, 2, 2, {}}, {2, 2, 1, {}}};

/// Plans all in windows of so many rounds, the last of `drained` draining; returns the samples that
/// each adapter's steps had, and how many windows there were.
std::map<std::pair<AdapterId, std::int32_t>, std::multiset<std::int32_t>> train_jointly(
    const Case& test, const Plan& plan, std::int32_t rounds, int drained) {
    std::map<std::pair<AdapterId, std::int32_t>, std::multiset<std::int32_t>> samples;
    Progress progress = fresh(plan);
    for (bool more = true; more;) {
        ScheduleStream stream(test.job, plan, test.datasets, progress);
        for (int i = 1; i <= drained; ++i) {
            const JointWindow joint = stream.next(rounds, i == drained);
            more = joint.common().rounds > 0;
            EXPECT_EQ(to_wire(from_wire<JointWindow>(to_wire(joint), "")), to_wire(joint));
            for (const Window& window : joint.replicas) {
                for (const Microbatch& microbatch : window.microbatches) {
                    for (const Segment& segment : microbatch.segments) {
                        for (const SampleRef& sample : segment.samples) {
                            samples[{segment.adapter, segment.step}].insert(sample.index);
                        }
                    }
                }
            }
            advance(progress, joint.common());
        }
    }
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        EXPECT_EQ(progress.steps[a], plan.adapters[a].total_steps);
    }
    return samples;
}

}  // namespace

/// An entry says it for its replicas alone.
TEST(Replicas, OneMayRecomputeBesideOthersThatDoNot) {
    Case test = mixed(two_equal);
    test.job.parallel.deployment = {{1, 1, 1, {}, Recompute::layer}, {1, 1, 1, {}}};
    const Plan plan = test.plan();
    EXPECT_EQ(plan.replicas[0].recompute, Recompute::layer);
    EXPECT_EQ(plan.replicas[1].recompute, Recompute::none);
    EXPECT_LT(plan.memory[0].activations, plan.memory[1].activations);
    EXPECT_EQ(to_text(test.job.parallel.deployment[0]), "{tp: 1, pp: 1, recompute: layer}");
}

TEST(Replicas, AreNumberedAndPlannedEachForItself) {
    const Case test = mixed({{1, 1, 2, 16}, {2, 2, 1, {}}});
    const Plan plan = test.plan();
    ASSERT_EQ(plan.replicas.size(), 3U);
    EXPECT_EQ(plan.replicas[0].tensor, 2);
    EXPECT_EQ(plan.replicas[0].stages[1].rank, 2);
    EXPECT_EQ(plan.replicas[1].stages[0].rank, 4);
    EXPECT_EQ(plan.replicas[0].microbatch_tokens, 64);
    EXPECT_EQ(plan.replicas[2].microbatch_tokens, 16);
    EXPECT_EQ(plan.memory.size(), 6U);
    EXPECT_GT(plan.memory[5].total(), plan.memory[0].total());
    ASSERT_EQ(plan.other_costs.size(), 1U);
    EXPECT_EQ(plan.other_costs[0].tensor, 1);
    EXPECT_GT(plan.other_costs[0].costs.layer_forward.per_token,
              plan.costs.layer_forward.per_token);
    EXPECT_EQ(to_text(plan_from_text(to_text(plan))), to_text(plan));
    EXPECT_NE(described(test).find("replica 0   tp 2, pp 2 on ranks 0-3, samples up to 64 tokens"),
              std::string::npos)
        << described(test);
}

TEST(Replicas, KeepTheSizesOfTheRunThatIsContinued) {
    Case test = mixed(unlike);
    test.job.parallel.microbatch_tokens.reset();
    Plan former = test.plan();
    former.replicas[1].microbatch_tokens = 77;
    const auto again = [&] {
        return make_plan(test.job, test.model, test.datasets, test.cluster, &former);
    };
    EXPECT_EQ(again().replicas[0].microbatch_tokens, former.replicas[0].microbatch_tokens);
    EXPECT_EQ(again().replicas[1].microbatch_tokens, 16);
    test.job.parallel.deployment[1].microbatch_tokens.reset();
    EXPECT_EQ(again().replicas[1].microbatch_tokens, 77);
}

TEST(Replicas, SaysWhatIsWrong) {
    Case test = mixed({{1, 1, 2, 16}, {1, 2, 1, 20}});
    test.cluster.ranks = 6;
    const std::string found = problems_of(test);
    EXPECT_NE(found.find("takes 4 ranks, but 6 were started"), std::string::npos) << found;
    EXPECT_NE(found.find("add {tp: 1, pp: 1, count: 2}"), std::string::npos) << found;
    EXPECT_NE(
        found.find(
            "12 samples have more tokens than the largest replica takes, 20; the "
            "longest is number 3 (from 0), with 40 tokens (give a replica of parallel.deployment "
            "microbatch_tokens: 40"),
        std::string::npos)
        << found;
}

TEST(Replicas, TakeWhatFitsTheirRanks) {
    Case test = mixed({{2, 1, 1, {}}, {1, 1, 1, {}}});
    test.job.parallel.microbatch_tokens.reset();
    test.job.parallel.recompute = Recompute::none;
    const Plan roomy = test.plan();
    ASSERT_GE(roomy.replicas[1].microbatch_tokens, 40);
    test.cluster.bytes_per_rank = roomy.memory[2].total() - 1;
    const auto limit = [&] {
        const Plan plan = test.plan();
        EXPECT_GE(plan.replicas[0].microbatch_tokens, 40);
        return plan.replicas[1].microbatch_tokens;
    };
    const auto too_few = [&](std::int64_t kilobytes) {
        test.cluster.bytes_per_rank = static_cast<std::uint64_t>(kilobytes) * 1000;
        return !problems_of(test).empty();
    };
    const auto most = static_cast<std::int64_t>(test.cluster.bytes_per_rank / 1000);
    EXPECT_FALSE(too_few(last_that_holds(1, most, too_few) + 1));
    EXPECT_GE(limit(), 1);
    EXPECT_LT(limit(), 40);  // one lane has no room for the longest samples any more
    test.cluster.bytes_per_rank = 1000;
    const std::string found = problems_of(test);
    EXPECT_NE(found.find("rank 0 (replica 0, stage 0) needs"), std::string::npos) << found;
    EXPECT_NE(found.find("rank 2 (replica 1, stage 0) needs"), std::string::npos) << found;
}

TEST(Replicas, TrainEverySampleOnceHoweverWindowsAreCut) {
    for (const Deployment& deployment : {two_equal, unlike, with_lanes, pipelines}) {
        const Case test = mixed(deployment);
        const Plan plan = test.plan();
        const auto wanted = train_jointly(test, plan, 1000, 1);
        EXPECT_EQ(wanted.size(), 3U * 4U);  // adapters, steps
        for (const std::int32_t rounds : {1, 2, 5}) {
            EXPECT_EQ(train_jointly(test, plan, rounds, 3), wanted);
        }
    }
}

TEST(Replicas, ComputeTheSameMicrobatchesHoweverWindowsAreCut) {
    const Case test = mixed(unlike);
    const Plan plan = test.plan();
    const auto microbatches = [&](std::int32_t rounds) {
        std::vector<std::size_t> counts(plan.replicas.size());
        std::vector<std::string> all;
        ScheduleStream stream(test.job, plan, test.datasets, fresh(plan));
        for (bool more = true; more;) {
            const JointWindow joint = stream.next(rounds, false);
            more = joint.common().rounds > 0;
            for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
                for (const Microbatch& microbatch : joint.replicas[r].microbatches) {
                    Window alone;
                    alone.microbatches = {microbatch};
                    all.push_back(cat(r, ".", counts[r]++, " ", to_wire(alone)));
                }
            }
        }
        std::sort(all.begin(), all.end());
        return all;
    };
    EXPECT_EQ(microbatches(1), microbatches(4));
}

TEST(Replicas, SomeHaveNoSamplesOfABatchOrARound) {
    Case test = mixed(unlike, 2);
    for (AdapterJob& adapter : test.job.adapters) adapter.global_batch_size = 1;
    const Plan plan = test.plan();
    const JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 24);
    std::size_t here = 0;
    for (const Window& window : joint.replicas) {
        for (const BatchPlan& batch : window.batches) here += batch.is_here() ? 1 : 0;
    }
    EXPECT_EQ(here, joint.common().batches.size());  // a sample is on one replica
    for (const Window& window : joint.replicas) EXPECT_FALSE(window.microbatches.empty());
    train_jointly(test, plan, 2, 4);
}

TEST(Replicas, RandomJobs) {
    const std::vector<Deployment> deployments{
        two_equal, with_lanes, pipelines, {{1, 3, 1, {}}, {1, 1, 1, {}}}};
    for (int seed = 0; seed < random_cases(12); ++seed) {
        Deployment deployment = deployments[static_cast<std::size_t>(seed) % deployments.size()];
        Case test = random_case(static_cast<std::uint64_t>(seed));
        for (ReplicaJob& entry : deployment) entry.microbatch_tokens.reset();
        if (test.job.parallel.microbatch_tokens && seed % 2 == 0) {
            deployment.back().microbatch_tokens = *test.job.parallel.microbatch_tokens;
            deployment.front().microbatch_tokens = 1 + *test.job.parallel.microbatch_tokens / 3;
            if (deployment.size() == 1) deployment.front().microbatch_tokens.reset();
        }
        for (AdapterJob& adapter : test.job.adapters) adapter.max_steps = 5;
        test = deployed(test, deployment);
        const Plan plan = test.plan();
        train_jointly(test, plan, 1 + seed % 3, 2);
    }
}

TEST(Replicas, EvaluateEverySampleOnce) {
    Case test = mixed(with_lanes, 2);
    test.job.datasets[0].eval_path = "eval.jsonl";
    test.datasets[0].eval = test.datasets[0].train;
    test.datasets[0].eval.resize(7);
    const Plan plan = test.plan();
    const std::vector<AdapterId> both{AdapterId{0}, AdapterId{1}};
    const JointWindow joint = plan_joint_eval_window(test.job, plan, test.datasets, both);
    EXPECT_TRUE(joint.reductions.empty());
    std::map<AdapterId, std::multiset<std::int32_t>> samples;
    for (const Window& window : joint.replicas) {
        for (const Microbatch& microbatch : window.microbatches) {
            for (const Segment& segment : microbatch.segments) {
                for (const SampleRef& sample : segment.samples) {
                    samples[segment.adapter].insert(sample.index);
                }
            }
        }
    }
    const std::multiset<std::int32_t> all{0, 1, 2, 3, 4, 5, 6};
    EXPECT_EQ(samples[AdapterId{0}], all);
    EXPECT_EQ(samples[AdapterId{1}], all);
}

/// Behind the rounds, while others train, however windows are cut.
TEST(Replicas, EvaluateInTheStream) {
    Case test = mixed(unlike, 3);
    test.job.eval.every_steps = 2;
    test.datasets[0].eval = test.datasets[0].train;
    test.datasets[0].eval.resize(3);
    for (int a = 0; a < 3; ++a) test.job.adapters[static_cast<std::size_t>(a)].max_steps = 3 + a;
    const Plan plan = test.plan();
    using Samples = std::map<std::pair<AdapterId, std::int32_t>, std::multiset<std::int32_t>>;
    const auto evaluated = [&](std::int32_t rounds) {
        Samples samples;
        ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1,
                              ScheduleStream::Evaluations::due);
        const auto take = [&](const JointWindow& joint) {
            for (const Window& window : joint.replicas) {
                for (const Microbatch& microbatch : window.microbatches) {
                    for (const Segment& segment : microbatch.segments) {
                        if (!microbatch.evaluation) continue;
                        for (const SampleRef& sample : segment.samples) {
                            samples[{segment.adapter, segment.step}].insert(sample.index);
                        }
                    }
                }
            }
            return joint.common().rounds > 0;
        };
        while (take(stream.next(rounds, false))) continue;
        take(stream.next(0, true));
        EXPECT_LT(stream.size(), 40U);  // all have ended
        return samples;
    };
    const Samples samples = evaluated(1);
    ASSERT_EQ(samples.size(), 7U);  // steps 2 and 3, 2 and 4, 2, 4 and 5
    for (const auto& [evaluation, of_one] : samples) {
        EXPECT_EQ(of_one, (std::multiset<std::int32_t>{0, 1, 2}));
    }
    EXPECT_EQ(evaluated(3), samples);
}

/// Two equal replicas take about half the time of one, and the time of the sums.
TEST(Replicas, ShareTheWork) {
    Case test = deployed(uniform_case(4, 1, 64, 1000, 16), two_equal);
    test.job.parallel.microbatch_tokens = 2000;
    Case alone = deployed(test, {{1, 1, 1, {}}});
    const Prediction both = predict(test.job, test.plan(), test.datasets, 8);
    const Prediction one = predict(alone.job, alone.plan(), alone.datasets, 8);
    EXPECT_EQ(both.tokens, one.tokens);
    EXPECT_GT(both.seconds, 0.5 * one.seconds);
    EXPECT_LT(both.seconds, 0.8 * one.seconds);
    ASSERT_EQ(both.replica_tokens.size(), 2U);
    EXPECT_EQ(both.replica_tokens[0], both.replica_tokens[1]);
}

TEST(Replicas, SumsBetweenHostsTakeWhatMessagesDoThere) {
    const Case test = deployed(uniform_case(4, 1, 64, 1000, 16), two_equal);
    Plan plan = test.plan();
    const auto seconds = [&](std::int32_t ranks_per_host) {
        plan.costs.ranks_per_host = ranks_per_host;
        return predict(test.job, plan, test.datasets, 8).seconds;
    };
    const double near = seconds(2);
    EXPECT_EQ(seconds(1), near);
    plan.costs.between_hosts = LinkCost{1.0, plan.costs.message.per_byte};
    EXPECT_EQ(seconds(2), near);
    EXPECT_GT(seconds(1), near + 1.0);
}

/// Where sums take long, half of the adapters compute while those of the others are under way.
TEST(Replicas, HideSumsBehindComputation) {
    Case test = deployed(uniform_case(4, 1, 64, 1000, 16), two_equal);
    test.job.parallel.microbatch_tokens = 4000;
    const auto planned = [&](double seconds_per_byte) {
        Plan plan = test.plan();
        plan.costs.message.per_byte = seconds_per_byte;
        return plan;
    };
    const Prediction quick = predict(test.job, planned(0.0), test.datasets, 8);
    const double compute = quick.seconds;
    const double bytes = 8.0 * static_cast<double>(adapter_parameters(
                                   test.job.adapters[0], test.model, test.model.layers));
    const double sums = 0.5 * compute;  // all together, of eight rounds of four adapters
    const Prediction slow = predict(test.job, planned(sums / (8 * 4) / bytes), test.datasets, 8);
    EXPECT_GT(slow.seconds, compute);
    EXPECT_LT(slow.seconds, compute + 0.5 * sums);
}

TEST(Replicas, PackARoundInTwoPartsWhereThatHidesSums) {
    const Case test = mixed(two_equal, 3);
    const Plan plan = test.plan();
    const std::vector<PackRules> rules(2, pack_rules(test.job, views_of(plan).front(), 1));
    Round round;
    for (int a = 0; a < 3; ++a) {
        round.push_back({AdapterId{a}, 0, {{0, 40, 39}, {1, 16, 15}, {2, 8, 7}, {3, 40, 39}}, 1});
    }
    const std::vector<Round> shares{round, {round[2]}};
    const auto packed = [&](double seconds) {
        return pack_shares(rules, shares,
                           std::vector<SharedAdapter>{{10, seconds}, {30, seconds}, {20, seconds}});
    };
    const PackedShares whole = packed(0.0);
    EXPECT_EQ(whole.ends, (std::vector<AdapterId>{AdapterId{0}, AdapterId{1}, AdapterId{2}}));
    EXPECT_EQ(whole.replicas[0].size(), pack_microbatches(rules[0], {&round, 1}).size());
    const PackedShares parts = packed(1.0);
    EXPECT_EQ(parts.ends, (std::vector<AdapterId>{AdapterId{1}, AdapterId{0}, AdapterId{2}}));
    bool second = false;
    for (const Microbatch& microbatch : parts.replicas[0]) {
        for (const Segment& segment : microbatch.segments) {
            const bool of_second = segment.adapter != AdapterId{1};
            EXPECT_TRUE(of_second || !second) << "behind the second part";
            second = second || of_second;
        }
    }
    EXPECT_EQ(parts.replicas[1].size(), whole.replicas[1].size());
}

TEST(Replicas, StepsWaitBehindWhatTheOtherAdaptersCompute) {
    Case test = mixed(two_equal, 4);
    const Plan plan = test.plan();
    const JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 3);
    ASSERT_EQ(joint.reductions.size(), 12U);
    for (const Window& window : joint.replicas) {
        const std::vector<Action>& list = window.actions.front();
        const auto place = [&](ActionKind kind, std::int32_t batch) {
            return std::find_if(list.begin(), list.end(), [&](const Action& action) {
                return action.kind == kind && action.batch == batch;
            });
        };
        const std::int32_t first = joint.reductions.front();
        const auto backwards =
            std::count_if(place(ActionKind::reduce, first), place(ActionKind::step, first),
                          [](const Action& action) { return action.kind == ActionKind::backward; });
        EXPECT_GT(backwards, 0);
    }
}

namespace {

/// Adapters that take one sample a step, the same: those of a0 and a2 are all on replica 0, those
/// of a1 and a3 on replica 1, every batch in a microbatch of its own.
Case apart() {
    Case test = deployed(uniform_case(4, 1, 64, 1000, 1), two_equal);
    for (std::size_t i = 0; i < test.datasets[0].train.size(); ++i) {
        const auto tokens = static_cast<std::int32_t>(4100 + 60 * i);
        test.datasets[0].train[i] = {tokens, tokens - 1};
    }
    test.job.parallel.microbatch_tokens = 8000;
    return test;
}

/// The same, evaluated on so many samples every few steps.
Case evaluated_apart(int every_steps, std::size_t samples) {
    Case test = apart();
    test.job.eval.every_steps = every_steps;
    test.datasets[0].eval = test.datasets[0].train;
    test.datasets[0].eval.resize(samples);
    return test;
}

/// Share of the time that the busier replica waits, where one takes so much more for a round than
/// was planned, and the other so much less, in turn.
double waited(const Case& test, double more) {
    Plan plan = test.plan();
    plan.costs.message.fixed = plan.costs.message.per_byte = 0.0;
    JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 8);
    for (std::size_t r = 0; r < 2; ++r) {
        std::vector<Microbatch>& microbatches = joint.replicas[r].microbatches;
        for (std::size_t m = 0; m < microbatches.size(); ++m) {
            const double share = (m / 2 + r) % 2 == 0 ? 1.0 + more : 1.0 - more;  // two a round
            for (SampleRef& sample : microbatches[m].segments.front().samples) {
                sample.tokens = static_cast<std::int32_t>(share * sample.tokens);
            }
        }
    }
    Simulator simulator(test.job, plan);
    simulator.add(joint);
    const loratrain::Timeline& timeline = simulator.timeline();
    return 1.0 - std::max(timeline.busy(0), timeline.busy(1)) / timeline.makespan();
}

}  // namespace

/// So that no replica is waited for where it adds nothing.
TEST(Replicas, ComeToSumsOfWhatTheyHaveNothingOfAsSoonAsTheyMay) {
    const Case test = apart();
    const Plan plan = test.plan();
    const JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 5);
    for (std::size_t r = 0; r < 2; ++r) {
        const Window& window = joint.replicas[r];
        for (std::size_t b = 0; b < window.batches.size(); ++b) {
            EXPECT_EQ(window.batches[b].is_here(), b % 2 == r);
        }
        std::set<std::int32_t> stepped;
        std::size_t reduced = 0;
        for (const Action& action : window.actions.front()) {
            if (action.kind == ActionKind::step) stepped.insert(action.batch);
            if (action.kind == ActionKind::reduce) ++reduced;
            if (action.kind != ActionKind::forward) continue;
            ASSERT_LT(reduced, joint.reductions.size());
            const std::int32_t next = joint.reductions[reduced];
            const std::int32_t before = next - 4;  // the adapter's
            const bool may = before < 0 || stepped.contains(before);
            const bool here = window.batches[static_cast<std::size_t>(next)].is_here();
            EXPECT_TRUE(here || !may) << "replica " << r << ", batch " << next;
        }
    }
}

/// Its evaluation is behind the former step too.
TEST(Replicas, ComeToThemBehindTheEvaluationsBefore) {
    const Case test = evaluated_apart(1, 3);
    const Plan plan = test.plan();
    for (const std::int32_t rounds : {1, 2}) {
        ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1,
                              ScheduleStream::Evaluations::due);
        for (int i = 0; i < 4; ++i) EXPECT_NO_THROW(stream.next(rounds, i == 3));
    }
}

/// Also those without a share of it: all learn of the step, and the evaluation is computed, in the
/// window that ends with it.
TEST(Replicas, StepWhatIsAwaited) {
    const Case test = evaluated_apart(2, 1);
    const Plan plan = test.plan();
    for (const AdapterId awaited : {AdapterId{0}, AdapterId{2}}) {
        ScheduleStream stream(test.job, plan, test.datasets, fresh(plan), 1,
                              ScheduleStream::Evaluations::due);
        bool any_has_no_share = false;
        for (int i = 0; i < 3; ++i) {
            stream.await({awaited});
            const JointWindow joint = stream.next(2, i == 2);
            const auto& batches = joint.common().batches;
            const auto newest =
                std::find_if(batches.rbegin(), batches.rend(), [&](const BatchPlan& batch) {
                    return batch.adapter == awaited && !batch.evaluation;
                });
            const auto number_of_batch =
                joint.common().first_batch + static_cast<std::int32_t>(batches.rend() - newest) - 1;
            for (const Window& window : joint.replicas) {
                for (const std::vector<Action>& stage : window.actions) {
                    EXPECT_EQ(std::count_if(stage.begin(), stage.end(),
                                            [&](const Action& action) {
                                                return action.kind == ActionKind::step &&
                                                       action.batch == number_of_batch;
                                            }),
                              1);
                }
                for (const BatchPlan& batch : window.batches) {
                    if (batch.evaluation && !batch.is_here()) any_has_no_share = true;
                    if (!batch.evaluation || !batch.is_here() || batch.adapter != awaited) continue;
                    const auto& last = window.actions.back();
                    EXPECT_TRUE(std::any_of(last.begin(), last.end(), [&](const Action& action) {
                        return action.kind == ActionKind::forward &&
                               action.microbatch == batch.last_microbatch;
                    }));
                }
            }
        }
        EXPECT_TRUE(any_has_no_share);
    }
}

TEST(Replicas, SumInTheOrderInWhichBatchesEnd) {
    const Case test = apart();
    const Plan plan = test.plan();
    const JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 2);
    std::map<std::int32_t, std::size_t> place;  // of a batch, among the microbatches of its replica
    for (std::size_t r = 0; r < 2; ++r) {
        for (std::size_t b = 0; b < joint.common().batches.size(); ++b) {
            const BatchPlan& batch = joint.replicas[r].batches[b];
            if (batch.is_here()) place[static_cast<std::int32_t>(b)] = index(batch.last_microbatch);
        }
    }
    for (std::size_t i = 1; i < joint.reductions.size(); ++i) {
        EXPECT_LE(place.at(joint.reductions[i - 1]), place.at(joint.reductions[i]));
    }
}

/// A replica may be a microbatch behind the other before that waits.
TEST(Replicas, DoNotWaitInTurnForEachOther) {
    EXPECT_LT(waited(apart(), 0.0), 0.08);
    EXPECT_LT(waited(apart(), 0.4), 0.15);
}

/// A sum begins once a host that is at a layer has looked for it.
TEST(Replicas, BeginSumsBetweenTwoLayersOfTheOthers) {
    Case test = apart();
    test.job.adapters.resize(2);
    Plan plan = test.plan();
    plan.costs.message.fixed = plan.costs.message.per_byte = 0.0;
    plan.costs.full_speed_ranks = 0.0;
    JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 1);
    for (SampleRef& sample : joint.replicas[1].microbatches[0].segments[0].samples) {
        sample.tokens *= 2;  // it computes longer
    }
    const auto action = [](ActionKind kind, std::int32_t batch) {
        Action one;
        one.kind = kind;
        one.batch = batch;
        one.microbatch = MicrobatchId{0};
        return one;
    };
    using enum ActionKind;
    joint.replicas[0].actions[0] = {action(forward, -1), action(backward, -1), action(reduce, 0),
                                    action(step, 0),     action(reduce, 1),    action(step, 1)};
    joint.replicas[1].actions[0] = {action(reduce, 0), action(forward, -1), action(backward, -1),
                                    action(reduce, 1), action(step, 0),     action(step, 1)};
    Simulator simulator(test.job, plan);
    simulator.add(joint);
    const loratrain::Timeline& timeline = simulator.timeline();
    const std::vector<TimelineSpan>& first = timeline.stages[0];
    const std::vector<TimelineSpan>& second = timeline.stages[1];
    ASSERT_EQ(first.size(), 4U);
    ASSERT_LT(first[1].end, second[1].end);
    const TimelineSpan& meanwhile = first[1].end < second[0].end ? second[0] : second[1];
    EXPECT_NEAR(first[2].start - first[1].end, (meanwhile.end - meanwhile.start) / 4, 1e-9);
}

// ---- the checker

class JointChecker : public ::testing::Test {
  protected:
    JointChecker() : test_(mixed(unlike)), plan_(test_.plan()) {
        valid_ = plan_joint_window(test_.job, plan_, test_.datasets, fresh(plan_), 3);
        EXPECT_EQ(found(valid_), "");
    }

    std::string found(const JointWindow& joint) const {
        return join(check_window(test_.job, plan_, joint), "\n");
    }

    void expect_found(const std::string& words, const std::function<void(JointWindow&)>& change) {
        JointWindow changed = valid_;
        change(changed);
        const std::string text = found(changed);
        EXPECT_NE(text.find(words), std::string::npos) << words << " is not in:\n" << text;
    }

    /// Replica 0 is a pipeline of two stages, replica 1 one stage of 16 tokens.
    static std::vector<Action>& actions(JointWindow& joint, std::size_t replica,
                                        std::size_t stage) {
        return joint.replicas[replica].actions[stage];
    }
    static auto nth(std::vector<Action>& actions, ActionKind kind, int n) {
        return std::find_if(actions.begin(), actions.end(),
                            [&](const Action& action) { return action.kind == kind && n-- == 0; });
    }

    Case test_;
    Plan plan_;
    JointWindow valid_;
};

TEST_F(JointChecker, FindsReducesInAnotherOrder) {
    expect_found("out of the order that is announced", [&](JointWindow& joint) {
        auto& list = actions(joint, 1, 0);
        std::swap(*nth(list, ActionKind::reduce, 0), *nth(list, ActionKind::reduce, 1));
    });
    expect_found("out of the order in which batches are reduced", [&](JointWindow& joint) {
        auto& list = actions(joint, 1, 0);
        std::swap(*nth(list, ActionKind::step, 0), *nth(list, ActionKind::step, 1));
    });
    expect_found("out of the order that is announced",
                 [](JointWindow& joint) { std::swap(joint.reductions[0], joint.reductions[1]); });
    expect_found("reductions are not the batches",
                 [](JointWindow& joint) { joint.reductions.pop_back(); });
}

TEST_F(JointChecker, FindsAMissingReduceAndAMissingStep) {
    expect_found("is not reduced", [&](JointWindow& joint) {
        auto& list = actions(joint, 0, 1);
        list.erase(nth(list, ActionKind::reduce, 2));
    });
    expect_found("waits for ever", [&](JointWindow& joint) {  // as others never reduce it
        auto& list = actions(joint, 0, 1);
        list.erase(nth(list, ActionKind::reduce, 8));
    });
    expect_found("never steps batch", [&](JointWindow& joint) {
        auto& list = actions(joint, 0, 1);
        list.erase(nth(list, ActionKind::step, 8));
    });
    expect_found("stale weights", [&](JointWindow& joint) {
        auto& list = actions(joint, 0, 0);
        std::rotate(nth(list, ActionKind::step, 0), nth(list, ActionKind::step, 0) + 1, list.end());
    });
}

TEST_F(JointChecker, FindsAStepBeforeItsReduce) {
    expect_found("is not reduced", [&](JointWindow& joint) {
        auto& list = actions(joint, 1, 0);
        std::iter_swap(nth(list, ActionKind::reduce, 0), nth(list, ActionKind::step, 0));
    });
}

/// Its gradients are the former batch's until that is stepped.
TEST(Replicas, CheckerFindsAReduceBeforeTheFormerStep) {
    const Case test = apart();
    const Plan plan = test.plan();
    JointWindow joint = plan_joint_window(test.job, plan, test.datasets, fresh(plan), 3);
    ASSERT_TRUE(check_window(test.job, plan, joint).empty());
    auto& list = joint.replicas[1].actions[0];
    const auto of = [&](ActionKind kind, std::int32_t batch) {
        return std::find_if(list.begin(), list.end(), [&](const Action& action) {
            return action.kind == kind && action.batch == batch;
        });
    };
    ASSERT_FALSE(joint.replicas[1].batches[4].is_here());
    const auto step = of(ActionKind::step, 0);
    const auto early = of(ActionKind::reduce, 4);
    ASSERT_LT(step, early);
    std::rotate(step, early, early + 1);
    const std::string found = join(check_window(test.job, plan, joint), "\n");
    EXPECT_NE(found.find("batch 0 is not stepped yet"), std::string::npos) << found;
}

TEST_F(JointChecker, FindsAReduceBeforeItsBackward) {
    expect_found("backwards are missing", [&](JointWindow& joint) {
        for (std::size_t replica : {0U, 1U}) {
            for (std::size_t s = 0; s < joint.replicas[replica].actions.size(); ++s) {
                auto& list = actions(joint, replica, s);
                const auto reduce = nth(list, ActionKind::reduce, 0);
                std::rotate(list.begin(), reduce, reduce + 1);
            }
        }
    });
}

TEST_F(JointChecker, FindsSumsInMessages) {
    expect_found("carries other batches", [&](JointWindow& joint) {
        nth(actions(joint, 0, 1), ActionKind::send_backward, 0)->carried.push_back(0);
    });
}

TEST_F(JointChecker, FindsASampleTwiceOrNowhere) {
    const auto first_segment = [](JointWindow& joint, std::size_t replica) -> Segment& {
        return joint.replicas[replica].microbatches.front().segments.front();
    };
    expect_found("samples",
                 [&](JointWindow& joint) { first_segment(joint, 0).samples.pop_back(); });
    expect_found("a second time in epoch", [&](JointWindow& joint) {
        const Segment& there = first_segment(joint, 0);
        for (Microbatch& microbatch : joint.replicas[1].microbatches) {
            for (Segment& here : microbatch.segments) {
                if (here.adapter == there.adapter) here.samples.push_back(there.samples.front());
            }
        }
    });
}

TEST_F(JointChecker, FindsASampleThatIsTooLongForItsReplica) {
    expect_found("replica 1: microbatch 0 has", [&](JointWindow& joint) {
        joint.replicas[1].microbatches[0].segments[0].samples[0].tokens = 17;
    });
}

TEST_F(JointChecker, FindsReplicasThatDisagree) {
    expect_found("has another window than 0",
                 [](JointWindow& joint) { ++joint.replicas[1].batches[0].targets; });
    expect_found("has another window than 0",
                 [](JointWindow& joint) { joint.replicas[1].drains = !joint.replicas[1].drains; });
    expect_found("windows of 1 replicas", [](JointWindow& joint) { joint.replicas.pop_back(); });
}

/// A window that does not drain leaves the last round alone.
TEST_F(JointChecker, FindsWhatOtherReplicasWouldWaitFor) {
    ScheduleStream stream(test_.job, plan_, test_.datasets, fresh(plan_));
    JointWindow joint = stream.next(3, false);
    const auto reduces = [&](const JointWindow& window) {
        std::vector<std::int32_t> batches;
        for (const Action& action : window.replicas[1].actions[0]) {
            if (action.kind == ActionKind::reduce) batches.push_back(action.batch);
        }
        return batches;
    };
    EXPECT_GE(reduces(joint).size(), 6U);  // three adapters, two of three rounds
    const std::set<std::int32_t> late(joint.reductions.begin() + 5, joint.reductions.end());
    for (Window& window : joint.replicas) {
        for (auto& list : window.actions) {
            std::erase_if(list, [&](const Action& action) { return late.contains(action.batch); });
        }
    }
    const std::string text = join(StreamChecker(test_.job, plan_).check(joint), "\n");
    EXPECT_NE(text.find("is not reduced by the end of the window"), std::string::npos) << text;
}

}  // namespace loratrain::plan_test
