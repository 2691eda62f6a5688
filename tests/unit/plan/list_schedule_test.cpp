#include "plan/timing/list_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "plan/timing/pipeline_time.h"
#include "unit/plan/plan_fixtures.h"

namespace loratrain::plan_test {

namespace {

/// Batches of some microbatches each, in turn of some adapters; times of 0 to 20.
PipelineLoad random_load(std::uint64_t seed) {
    Draw draw(seed);
    PipelineLoad load;
    load.stages = draw.between(1, 9);
    load.max_in_flight = draw.between(1, 2 * load.stages);
    const int adapters = draw.between(1, 4);
    const int cut = draw.between(1, 5);
    std::vector<std::int32_t> ended(static_cast<std::size_t>(adapters), 0);
    const int batches = draw.between(1, 12);
    for (int b = 0; b < batches; ++b) {
        std::int32_t& before = ended[static_cast<std::size_t>(b % adapters)];
        const int count = draw.between(1, cut);
        for (int m = 0; m < count; ++m) {
            load.required.push_back(m == 0 ? before : 0);
            for (int s = 0; s < load.stages; ++s) {
                load.forward.push_back(draw.between(0, 10));
                load.backward.push_back(draw.between(0, 20));
            }
        }
        before = static_cast<std::int32_t>(load.required.size());
    }
    return load;
}

struct PlayedByTheClock {
    ComputeOrder order;
    std::int64_t end = 0;
};

/// The rules of list_schedule.h nanosecond by nanosecond.
class ByTheClock {
  public:
    explicit ByTheClock(const PipelineLoad& load)
        : load_(load), stages_(static_cast<std::size_t>(load.stages)), all_(stages_.size()) {}

    PlayedByTheClock play() {
        const auto count = static_cast<std::int32_t>(load_.required.size());
        for (std::int64_t now = 0; stages_[0].backwards < count || stages_[0].free_at > now;
             ++now) {
            for (std::size_t s = 0; s < stages_.size(); ++s) start(s, now);
            end_ = now + 1;
        }
        return {all_, end_};
    }

  private:
    struct Stage {
        std::int64_t free_at = 0;
        std::int32_t forwards = 0;  ///< begun
        std::int32_t backwards = 0;
        std::vector<std::int64_t> forward_ends;
        std::vector<std::int64_t> backward_ends;
    };

    static bool ended(const std::vector<std::int64_t>& ends, std::int32_t m, std::int64_t now) {
        return m < std::ssize(ends) && ends[static_cast<std::size_t>(m)] <= now;
    }
    std::int64_t time(const std::vector<std::int64_t>& times, std::int32_t m, std::size_t s) const {
        return std::max<std::int64_t>(1, times[static_cast<std::size_t>(m) * stages_.size() + s]);
    }

    void start(std::size_t s, std::int64_t now) {
        Stage& stage = stages_[s];
        if (stage.free_at > now) return;
        const std::int32_t f = stage.forwards;
        const std::int32_t b = stage.backwards;
        const std::int32_t limit = std::max(1, load_.max_in_flight - static_cast<std::int32_t>(s));
        bool forward = f < std::ssize(load_.required) && f - b < limit;
        forward = forward && (s == 0 ? b >= load_.required[static_cast<std::size_t>(f)]
                                     : ended(stages_[s - 1].forward_ends, f, now));
        const bool last = s + 1 == stages_.size();
        bool backward = b < f && (last || ended(stages_[s + 1].backward_ends, b, now));
        if (s == 0 && forward) backward = false;
        if (backward) {
            stage.free_at = now + time(load_.backward, b, s);
            stage.backward_ends.push_back(stage.free_at);
            ++stage.backwards;
            all_[s].push_back({true, b});
        } else if (forward) {
            stage.free_at = now + time(load_.forward, f, s);
            stage.forward_ends.push_back(stage.free_at);
            ++stage.forwards;
            all_[s].push_back({false, f});
        }
    }

    const PipelineLoad& load_;
    std::vector<Stage> stages_;
    ComputeOrder all_;
    std::int64_t end_ = 0;
};

std::vector<std::vector<int>> words(const ComputeOrder& order) {
    std::vector<std::vector<int>> all;
    for (const auto& stage : order) {
        std::vector<int>& line = all.emplace_back();
        for (const ComputeStep& step : stage) {
            line.push_back(2 * step.microbatch + (step.backward ? 1 : 0));
        }
    }
    return all;
}

}  // namespace

/// Neighbours that keep, offload or stream unequally many layers take unequally long.
TEST(AddTimes, OfStagesThatTreatTheirLayersOtherwise) {
    Case test = uniform_case(2, 2, 8, 64, 4);
    test.job.parallel.recompute = Recompute::layer;
    const Plan plan = test.plan();
    CostModel costs = plan.costs;
    costs.layer_transfer = costs.layer_traffic = 1.0;
    costs.offload_per_token = 1.0;
    StagePlan first = plan.replicas.front().stages.front();
    first.has_embedding = false;
    first.layer_count = 8;
    const AdapterLoads loads(MicrobatchLoad{64, 4096.0, 64});
    const std::vector<std::function<void(StagePlan&)>> changes = {
        [](StagePlan& stage) { stage.kept_layers = 3; },
        [](StagePlan& stage) { stage.offloaded_layers = 7; },
        [](StagePlan& stage) { stage.resident_layers = 1; }};
    for (const auto& change : changes) {
        StagePlan second = first;
        change(second);
        PipelineLoad load;
        add_times(load, costs, std::vector{first, second}, Recompute::layer, loads);
        EXPECT_NE(load.backward[0], load.backward[1]);
    }
}

TEST(ListSchedule, FollowsItsRules) {
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
        const PipelineLoad load = random_load(seed);
        const PlayedByTheClock expected = ByTheClock(load).play();
        ListSchedule schedule(load);
        ComputeOrder order(static_cast<std::size_t>(load.stages));
        schedule.advance(true, &order);
        EXPECT_EQ(words(order), words(expected.order)) << seed;
        EXPECT_EQ(schedule.now(), expected.end) << seed;
        EXPECT_EQ(pipeline_time(load).makespan, expected.end) << seed;
        EXPECT_EQ(pipeline_time(load).busy, schedule.busy()) << seed;
    }
}

TEST(ListSchedule, OrderDoesNotDependOnWhenMicrobatchesAreKnown) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const PipelineLoad whole = random_load(seed);
        const auto stages = static_cast<std::size_t>(whole.stages);
        Draw draw(seed + 1000);
        PipelineLoad load = whole;
        load.forward.clear();
        load.backward.clear();
        load.required.clear();
        ListSchedule schedule(load);
        ComputeOrder order(stages);
        for (std::size_t m = 0; m < whole.required.size();) {
            const auto more = static_cast<std::size_t>(draw.between(1, 6));
            for (std::size_t i = 0; i < more && m < whole.required.size(); ++i, ++m) {
                const auto row = static_cast<std::ptrdiff_t>(m * stages);
                const auto end = row + static_cast<std::ptrdiff_t>(stages);
                load.forward.insert(load.forward.end(), whole.forward.begin() + row,
                                    whole.forward.begin() + end);
                load.backward.insert(load.backward.end(), whole.backward.begin() + row,
                                     whole.backward.begin() + end);
                load.required.push_back(whole.required[m]);
            }
            schedule.advance(m == whole.required.size(), &order);
            drop_below(load, schedule.ended());
        }
        EXPECT_EQ(words(order), words(ByTheClock(whole).play().order)) << seed;
    }
}

TEST(PipelineBound, IsNeverAboveTheMakespan) {
    double sum = 0.0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        const PipelineLoad load = random_load(seed);
        const std::int64_t makespan = pipeline_time(load).makespan;
        const PipelineBound bound = pipeline_bound(load);
        EXPECT_LE(bound.makespan(), makespan) << seed;
        EXPECT_LE(least_work(load, 1), bound.makespan()) << seed;
        ASSERT_EQ(bound.from.size(), load.required.size());
        EXPECT_TRUE(std::is_sorted(bound.from.rbegin(), bound.from.rend())) << seed;
        sum += static_cast<double>(bound.makespan()) / static_cast<double>(makespan);
    }
    EXPECT_GT(sum / 300.0, 0.9);
}

/// One microbatch alone goes up and down; a chain of batches that wait for each other does so once
/// for each; with one stage everything is work.
TEST(PipelineBound, IsExactForChains) {
    for (const std::int32_t stages : {1, 2, 5}) {
        PipelineLoad load;
        load.stages = load.max_in_flight = stages;
        for (std::int32_t m = 0; m < 4; ++m) {
            load.required.push_back(m);
            load.forward.insert(load.forward.end(), static_cast<std::size_t>(stages), 3 + m);
            load.backward.insert(load.backward.end(), static_cast<std::size_t>(stages), 7);
        }
        EXPECT_EQ(pipeline_bound(load).makespan(), stages * (4 * 10 + 0 + 1 + 2 + 3));
        EXPECT_EQ(pipeline_bound(load).makespan(), pipeline_time(load).makespan);
        EXPECT_EQ(pipeline_bound(load).from[3], stages * 13);
    }
    EXPECT_EQ(pipeline_bound(PipelineLoad()).makespan(), 0);
}

/// On one stage work is all there is, however often it is repeated.
TEST(PipelineBound, OfWorkAlone) {
    PipelineLoad times;
    times.stages = 3;
    times.forward = {1, 0, 2, 5, 1, 1};
    times.backward = {2, 2, 4, 9, 1, 3};
    EXPECT_EQ(least_work(times, 1), (1 + 1) + 10 + (9 + 1));  // the last stage
    EXPECT_EQ(least_work(times, 4), 4 * 17);                  // the first one
    times.forward[2] = 20;
    EXPECT_EQ(least_work(times, 4), (1 + 1) + 4 * 28 + (9 + 1));  // the last one
    times.stages = 1;
    EXPECT_EQ(least_work(times, 5), 5 * (29 + 21));
    EXPECT_EQ(least_work(PipelineLoad(), 2), 0);
}

TEST(PipelineTime, WithinALimitIsTheSameOrNone) {
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        const PipelineLoad load = random_load(seed);
        const PipelineBound bound = pipeline_bound(load);
        const PipelineTime time = pipeline_time(load);
        for (const std::int64_t more : {std::int64_t{0}, std::int64_t{1}, time.makespan}) {
            const auto within = pipeline_time_within(load, bound, time.makespan + more);
            ASSERT_TRUE(within) << seed;
            EXPECT_EQ(within->makespan, time.makespan);
            EXPECT_EQ(within->busy, time.busy);
        }
        for (const std::int64_t less : {std::int64_t{1}, time.makespan / 3, time.makespan}) {
            if (less == 0) continue;
            EXPECT_FALSE(pipeline_time_within(load, bound, time.makespan - less)) << seed;
        }
    }
}

TEST(EndTimes, FindTheFirstOnes) {
    for (const std::size_t stages : {1U, 2U, 3U, 8U, 13U, 64U}) {
        Draw draw(stages);
        EndTimes ends(stages);
        std::vector<std::int64_t> plain(stages, EndTimes::never);
        EXPECT_EQ(ends.first(), EndTimes::never);
        for (int i = 0; i < 200; ++i) {
            const auto s = static_cast<std::size_t>(draw.between(0, static_cast<int>(stages) - 1));
            plain[s] = draw.one_in(3) ? EndTimes::never : draw.between(0, 50);
            ends.set(s, plain[s]);
            const auto least = std::min_element(plain.begin(), plain.end());
            ASSERT_EQ(ends.first(), *least);
            if (*least == EndTimes::never) continue;
            std::vector<std::size_t> found;
            ends.each_at(*least, [&](std::size_t stage) { found.push_back(stage); });
            std::vector<std::size_t> equal;
            for (std::size_t p = 0; p < stages; ++p) {
                if (plain[p] == *least) equal.push_back(p);
            }
            ASSERT_EQ(found, equal);
        }
    }
}

}  // namespace loratrain::plan_test
