#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "plan/schedule/check_window.h"
#include "plan/schedule/schedule_stream.h"
#include "plan/schedule/window_fields.h"
#include "plan/text/describe.h"
#include "plan/text/plan_text.h"
#include "support/sanitized.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// A microbatch in words.
std::string words_of(const Microbatch& microbatch) {
    std::string text;
    for (const Segment& segment : microbatch.segments) {
        text += cat("|", number(segment.adapter), "@", segment.step);
        for (const SampleRef& sample : segment.samples) text += cat(" ", sample.index);
    }
    return text;
}

/// How a job is planned: rounds asked for at a time, and windows between drains.
struct Cuts {
    std::int32_t rounds = 1;
    int windows = 1;
    ScheduleStream::Evaluations evaluations = ScheduleStream::Evaluations::none;
};

/// Plans everything; checks every window's text. Returns all microbatches that are trained.
std::vector<std::string> train(const Case& test, const Plan& plan, const Cuts& cuts) {
    std::vector<std::string> all;
    Progress progress = fresh(plan);
    for (bool more = true; more;) {
        ScheduleStream stream(test.job, plan, test.datasets, progress, 1, cuts.evaluations);
        StreamChecker checker(test.job, plan);
        for (int i = 1; i <= cuts.windows; ++i) {
            const JointWindow joint = stream.next(cuts.rounds, i == cuts.windows);
            const Window& window = joint.common();
            more = window.rounds > 0;
            EXPECT_EQ(join(checker.check(joint), "\n"), "");
            EXPECT_EQ(to_wire(from_wire<JointWindow>(to_wire(joint), "")), to_wire(joint));
            for (const Microbatch& microbatch : window.microbatches) {
                if (!microbatch.evaluation) all.push_back(words_of(microbatch));
            }
            advance(progress, window);
        }
    }
    for (std::size_t a = 0; a < plan.adapters.size(); ++a) {
        EXPECT_EQ(progress.steps[a], plan.adapters[a].total_steps);
    }
    return all;
}

/// Under a sanitizer a few steps of each adapter.
Case short_enough(Case test) {
    constexpr int few_steps = 3;
    for (AdapterJob& adapter : test.job.adapters) {
        if (sanitized)
            adapter.max_steps = std::min(adapter.max_steps.value_or(few_steps), few_steps);
    }
    return test;
}

}  // namespace

class RandomJobs : public testing::TestWithParam<int> {
  protected:
    /// The suite's tests of a seed share its plan: the search for one takes longer than they do.
    static const Plan& planned(int seed, const Case& test) {
        static std::map<int, Plan> plans;
        const auto [known, fresh] = plans.try_emplace(seed);
        if (fresh) known->second = test.plan();
        return known->second;
    }

    Case test_ = short_enough(random_case(static_cast<std::uint64_t>(GetParam())));
    const Plan& plan_ = planned(GetParam(), test_);
};

TEST_P(RandomJobs, PackingDoesNotDependOnWindowCuts) {
    const std::vector<std::string> all = train(test_, plan_, {1000, 1});
    if (GetParam() % 2 == 0) {
        EXPECT_EQ(train(test_, plan_, {1, 1}), all);
    } else {
        EXPECT_EQ(train(test_, plan_, {1, 1000}), all);
    }
    EXPECT_EQ(train(test_, plan_, {1 + GetParam() % 5, 2 + GetParam() % 3}), all);
}

TEST_P(RandomJobs, EvaluationsGoOnInTheStream) {
    Case test = test_;
    test.job.eval.every_steps = 1 + GetParam() % 7;
    const Cuts cuts{1 + GetParam() % 4, 1 + GetParam() % 5, ScheduleStream::Evaluations::due};
    train(test, plan_, cuts);
}

TEST_P(RandomJobs, StagesComputeEveryAdapterOnceInEveryLayer) {
    const std::vector<StagePlan>& stages = plan_.replicas[0].stages;
    EXPECT_TRUE(cover_every_layer(stages, static_cast<std::int32_t>(plan_.model.layers),
                                  static_cast<int>(plan_.adapters.size())));
    EXPECT_GE(plan_.replicas[0].max_in_flight, std::ssize(stages));
    EXPECT_LE(plan_.replicas[0].max_in_flight, stages.size() == 1 ? 1 : 2 * std::ssize(stages));
}

TEST_P(RandomJobs, OneAdapterAMicrobatchOnSharedLayers) {
    Case test = test_;
    test.job.schedule.policy = SchedulePolicy::mlora;
    const Plan plan = test.plan();
    EXPECT_GE(plan.replicas[0].max_in_flight, std::ssize(plan.replicas[0].stages));
    train(test, plan, {1 + GetParam() % 5, 2 + GetParam() % 3});
}

TEST_P(RandomJobs, BatchesHoldTheSamplesOfTheEpochOrder) {
    const Window window = plan_window(test_.job, plan_, test_.datasets, fresh(plan_), 1000);
    std::map<std::pair<std::int32_t, std::int32_t>, std::multiset<std::int32_t>> held;
    for (const Microbatch& microbatch : window.microbatches) {
        EXPECT_LE(microbatch.tokens(), plan_.replicas[0].microbatch_tokens);
        for (const Segment& segment : microbatch.segments) {
            const auto& infos = test_.datasets[index(test_.job.adapter(segment.adapter).dataset)];
            for (const SampleRef& sample : segment.samples) {
                EXPECT_EQ(sample.tokens,
                          infos.train[static_cast<std::size_t>(sample.index)].tokens);
                held[{number(segment.adapter), segment.step}].insert(sample.index);
            }
        }
    }
    for (const BatchPlan& batch : window.batches) {
        const std::vector<std::int32_t> expected =
            batch_samples(test_.job, plan_, batch.adapter, batch.step);
        const std::multiset<std::int32_t> samples(expected.begin(), expected.end());
        EXPECT_EQ((held[{number(batch.adapter), batch.step}]), samples);
        std::int64_t targets = 0;
        for (const std::int32_t sample : expected) {
            targets += test_.datasets[index(test_.job.adapter(batch.adapter).dataset)]
                           .train[static_cast<std::size_t>(sample)]
                           .targets;
        }
        EXPECT_EQ(batch.targets, targets);
    }
}

TEST_P(RandomJobs, EveryEpochVisitsEverySampleOnce) {
    for (std::size_t a = 0; a < plan_.adapters.size(); ++a) {
        const AdapterPlan& adapter = plan_.adapters[a];
        const AdapterId id{static_cast<std::int32_t>(a)};
        std::vector<std::int32_t> visited;
        for (std::int32_t step = 0; step < adapter.steps_per_epoch; ++step) {
            const auto batch =
                batch_samples(test_.job, plan_, id, 2 * adapter.steps_per_epoch + step);
            visited.insert(visited.end(), batch.begin(), batch.end());
            const bool last = step + 1 == adapter.steps_per_epoch;
            if (!last) {
                EXPECT_EQ(std::ssize(batch), test_.job.adapter(id).global_batch_size);
            }
        }
        std::sort(visited.begin(), visited.end());
        EXPECT_EQ(std::ssize(visited), adapter.samples);
        for (std::size_t i = 0; i < visited.size(); ++i) {
            EXPECT_EQ(visited[i], static_cast<std::int32_t>(i));
        }
    }
}

TEST_P(RandomJobs, StoppedAdaptersAreLeftOut) {
    Progress progress = fresh(plan_);
    progress.stopped[0] = true;
    const Window window = plan_window(test_.job, plan_, test_.datasets, progress, 5);
    for (const BatchPlan& batch : window.batches) EXPECT_NE(number(batch.adapter), 0);
    EXPECT_EQ(join(check_window(test_.job, plan_, window), "\n"), "");
}

TEST_P(RandomJobs, EvaluationWindowsHoldEveryEvalSample) {
    std::vector<AdapterId> adapters;
    std::size_t expected = 0;
    for (std::size_t a = 0; a < plan_.adapters.size(); a += 2) {
        adapters.push_back(AdapterId{static_cast<std::int32_t>(a)});
        expected += test_.datasets[index(test_.job.adapters[a].dataset)].eval.size();
    }
    const Window window = plan_eval_window(test_.job, plan_, test_.datasets, adapters);
    EXPECT_EQ(join(check_window(test_.job, plan_, window), "\n"), "");
    std::size_t samples = 0;
    for (const Microbatch& microbatch : window.microbatches) {
        samples += static_cast<std::size_t>(microbatch.samples());
    }
    EXPECT_EQ(samples, expected);
    EXPECT_EQ(to_wire(from_wire<Window>(to_wire(window), "")), to_wire(window));
}

TEST_P(RandomJobs, PlanTextReadsBack) {
    EXPECT_EQ(to_text(plan_from_text(to_text(plan_))), to_text(plan_));
    EXPECT_FALSE(describe(test_.job, plan_, {}, test_.datasets).empty());
}

/// Among the seeds of the suite.
TEST(RandomCases, ShareLayersAndKeepMoreInFlight) {
    std::vector<std::uint64_t> seeds{2, 9, 14};
    seeds.resize(std::min<std::size_t>(seeds.size(), static_cast<std::size_t>(random_cases(6))));
    for (const std::uint64_t seed : seeds) {
        const Plan plan = random_case(seed).plan();
        const std::vector<StagePlan>& stages = plan.replicas[0].stages;
        EXPECT_GT(plan.replicas[0].max_in_flight, std::ssize(stages)) << seed;
        EXPECT_TRUE(std::any_of(stages.begin(), stages.end(), [](const StagePlan& stage) {
            return !stage.last_layer_adapters.is_all();
        })) << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomJobs, testing::Range(0, random_cases(20)));

}  // namespace loratrain::plan_test
