#include "train/services/dispatch.h"

#include <map>
#include <thread>

#include "train/checkpoint/worker_checkpoints.h"
#include "unit/train/text_lines.h"
#include "unit/train/worker_run.h"

namespace loratrain::test {
namespace {

/// Worker 1 of a run, over a channel on which a test plays the dispatcher: it answers reports.
class DispatchedRun : public ::testing::Test, protected WorkerRun {
  protected:
    void SetUp() override {
        job.parallel.assignment = Assignment::each;
        lines.on_look = [this] { hear(); };
    }
    void make() {
        plan = make_plan(job, small_model(), datasets, cluster);
        ranks.emplace(job, plan);
        stop.emplace(job, stop_after);
        link.emplace(1, lines.other(), nullptr);
        root = worker_checkpoint_root(job, 1, 1);
        parts.reset(new RunParts{job, plan, files, datasets, identity, *stop, {}});
        parts->checkpoints = root;
        parts->keeps_records = false;
        parts->dispatcher = &*link;
        loop.emplace(*parts, *ranks);
        Decisions start;
        start.elapsed_seconds = 0.0;
        decide(start);
    }
    void decide(const Decisions& decisions) { lines.root().post(to_bytes(decisions)); }
    void give(AdapterId a, const std::string& checkpoint = "") {
        Decisions decisions;
        decisions.updates = {{a, heard[a]}};
        decisions.updates[0].state.status = AdapterStatus::waiting;
        decisions.given = {{1, a, checkpoint}};
        decide(decisions);
    }
    /// Adapters of so many steps, all given, which train in short windows.
    void begin_with(const std::vector<std::int32_t>& steps) {
        for (const std::int32_t each : steps) add(each);
        cut_windows(2);
        make();
        for (std::size_t a = 0; a < steps.size(); ++a) give(static_cast<AdapterId>(a));
    }
    /// So that another worker goes on with it.
    void ask_back(AdapterId a) {
        Decisions decisions;
        decisions.returned = {{1, a}};
        decide(decisions);
    }
    void end(ExitCode code = ExitCode::done) {
        Decisions decisions;
        decisions.over = code;
        decide(decisions);
    }
    /// What the worker has reported; `answer` is what the test makes of it.
    void hear() {
        if (++quiet_looks == most_quiet_looks) {
            ADD_FAILURE() << "the worker waits for what never comes";
            end(ExitCode::error);
        }
        while (const std::optional<std::string> text = lines.root().next_report()) {
            quiet_looks = 0;
            const WorkerReport report = worker_report_from_bytes(*text);
            for (const AdapterUpdate& update : report.states) heard[update.adapter] = update.state;
            for (const MetricsLine& line : report.metrics) ++rows[line.adapter];
            returned.insert(returned.end(), report.returned.begin(), report.returned.end());
            if (report.places) places.push_back(*report.places);
            if (answer) answer(report);
        }
    }
    bool has_ended(AdapterId a) { return heard.contains(a) && !is_unfinished(heard[a].status); }
    /// The run is over once these have ended.
    void end_after(std::vector<AdapterId> adapters) {
        answer = [this, adapters, then = answer, over = false](const WorkerReport& r) mutable {
            if (then) then(r);
            const bool all = std::all_of(adapters.begin(), adapters.end(),
                                         [this](AdapterId a) { return has_ended(a); });
            if (all && !std::exchange(over, true)) end();
        };
    }

    static constexpr int most_quiet_looks = 20000;
    int quiet_looks = 0;
    TextLines lines;
    std::optional<DispatcherLink> link;
    std::string root;
    std::function<void(const WorkerReport&)> answer;
    std::map<AdapterId, AdapterState> heard;
    std::map<AdapterId, int> rows;  ///< of metrics
    std::vector<ReturnedAdapter> returned;
    std::vector<int> places;
};

TEST_F(DispatchedRun, TrainsWhatItIsGivenAndNothingElse) {
    add({5, 5});
    make();
    give(second);
    end_after({second});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(heard[second].status, AdapterStatus::done);
    EXPECT_EQ(exported_step(second), 5);
    EXPECT_EQ(ranks->rounds_of(first), Steps{});
    EXPECT_EQ(rows[second], 5) << "metrics go to the dispatcher too";
    EXPECT_EQ(ranks->residence(second), Residence::absent) << "its memory is given back";
}

TEST_F(DispatchedRun, AnEndIsReportedOnceItsFilesAreThere) {
    add({5, 12});
    make();
    give(first);
    give(second);
    answer = [this](const WorkerReport&) {
        for (const AdapterId a : {first, second}) {
            EXPECT_TRUE(!has_ended(a) || is_exported(a)) << number(a);
        }
    };
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->streams(), 1) << "the end is reported while the other trains";
    EXPECT_EQ(exported_step(first), 5);
}

TEST_F(DispatchedRun, OneThatHasNotBegunComesInTheStream) {
    add({20, 4});
    cut_windows(2);
    make();
    give(first);
    before(first, 3, [this] { give(second); });
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->streams(), 1);
    EXPECT_EQ(exported_step(second), 4);
    EXPECT_GE(ranks->rounds_of(second).front(), 3);
}

TEST_F(DispatchedRun, AsksForOneMoreThanFitAndForNoneWhileOneWaits) {
    add({20, 4, 4});
    job.schedule.max_adapters = 1;
    make();
    give(first);
    answer = [this, given = false](const WorkerReport& report) mutable {
        if (report.places == 1 && !std::exchange(given, true)) give(second);
    };
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    ASSERT_FALSE(places.empty());
    EXPECT_EQ(places.front(), 1) << "one to wait";
    EXPECT_LE(*std::max_element(places.begin(), places.end()), 2);
    EXPECT_GT(ranks->rounds_of(second).front(), ranks->rounds_of(first).back());
}

TEST_F(DispatchedRun, ATrialAtARungLeavesAndComesAgainWhenItIsJudged) {
    add_trials(1, 9);
    add(30);
    job.sweep->scheduler = TrialScheduler::halving;
    job.sweep->rungs = 2;
    evaluate_every(0);
    make();
    give(first);
    give(second);
    int at_rung = 0;
    answer = [&](const WorkerReport& report) {
        if (report.at_rung.empty()) return;
        ++at_rung;
        EXPECT_EQ(heard[first].steps, 3);
        EXPECT_EQ(heard[first].status, AdapterStatus::parked);
        EXPECT_DOUBLE_EQ(heard[first].last_eval_loss, 0.25) << "evaluated there";
        Decisions promote;
        promote.updates = {{first, heard[first]}};
        promote.updates[0].state.rungs = {0.25};
        promote.updates[0].state.promoted = 1;
        promote.updates[0].state.status = AdapterStatus::waiting;
        decide(promote);
    };
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(at_rung, 1);
    EXPECT_EQ(heard[first].status, AdapterStatus::done);
    EXPECT_EQ(ranks->rounds_of(first).size(), 9U);
    EXPECT_EQ(exported_step(second), 30);
}

TEST_F(DispatchedRun, ATrialThatIsPrunedAtARungEndsThere) {
    add_trials(1, 9);
    job.sweep->scheduler = TrialScheduler::halving;
    job.sweep->rungs = 2;
    job.sweep->exports = SweepExport::none;
    evaluate_every(0);
    make();
    give(first);
    answer = [&](const WorkerReport& report) {
        if (report.at_rung.empty()) return;
        Decisions prune;
        prune.updates = {{first, heard[first]}};
        prune.updates[0].state.rungs = {0.25};
        prune.updates[0].state.status = AdapterStatus::pruned;
        decide(prune);
        end();
    };
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(ranks->steps(first), 3);
    EXPECT_FALSE(is_exported(first));
    EXPECT_EQ(ranks->residence(first), Residence::absent);
}

// ---- adapters move

TEST_F(DispatchedRun, WhatItGivesBackIsInACheckpointOfTheMove) {
    begin_with({40, 40});
    before(first, 3, [this] { ask_back(first); });
    end_after({second});
    EXPECT_EQ(run(), ExitCode::done);
    ASSERT_EQ(returned.size(), 1U);
    EXPECT_EQ(returned[0].adapter, first);
    const std::string stored = returned[0].checkpoint;
    ASSERT_FALSE(stored.empty());
    const std::int32_t left_at = heard[first].steps;
    EXPECT_GE(left_at, 3);
    EXPECT_EQ(step_in(stored + "/" + stored_adapter_name(job.adapter(first))), left_at);
    EXPECT_EQ(metrics(first, "loss").size(), static_cast<std::size_t>(left_at));
    EXPECT_EQ(ranks->steps(first), left_at) << "it trains no further here";
    EXPECT_EQ(ranks->residence(first), Residence::absent);
    EXPECT_FALSE(is_exported(first));
    EXPECT_EQ(exported_step(second), 40);
}

TEST_F(DispatchedRun, ATrialThatEndsWhileItMovesIsReportedAndNotGivenBack) {
    begin_with({4, 12});
    before(first, 4, [this] {  // its last step
        ask_back(first);
    });
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_TRUE(returned.empty());
    EXPECT_EQ(heard[first].status, AdapterStatus::done);
    EXPECT_EQ(exported_step(first), 4);
    EXPECT_EQ(ranks->count("send 0"), 1U);
}

TEST_F(DispatchedRun, WhatIsGivenBackBeforeItBeginsLeavesNoCheckpoint) {
    add({12, 12});
    job.schedule.max_adapters = 1;
    cut_windows(2);
    make();
    give(first);
    give(second);
    before(first, 3, [this] { ask_back(second); });
    end_after({first});
    EXPECT_EQ(run(), ExitCode::done);
    ASSERT_EQ(returned.size(), 1U);
    EXPECT_EQ(returned[0].checkpoint, "");
    EXPECT_EQ(ranks->rounds_of(second), Steps{});
}

TEST_F(DispatchedRun, WhatAnotherWorkerHasBegunGoesOnFromItsCheckpoint) {
    add({12, 12});
    cut_windows(2);
    make();
    give(first);
    before(first, 3, [this] { ask_back(first); });
    answer = [this](const WorkerReport& report) {  // and back again
        for (const ReturnedAdapter& r : report.returned) give(first, r.checkpoint);
    };
    end_after({first});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(returned.size(), 1U);
    EXPECT_EQ(ranks->count("load 0"), 1U);
    EXPECT_EQ(ranks->rounds_of(first).size(), 12U) << "each step once";
    EXPECT_EQ(exported_step(first), 12);
    EXPECT_EQ(metrics(first, "loss").size(), 12U);
}

TEST_F(DispatchedRun, OneThatComesWithAnOrderToEndIsExportedAsItIs) {
    add(12);
    cut_windows(2);
    make();
    give(first);
    before(first, 3, [this] { ask_back(first); });
    answer = [this](const WorkerReport& report) {
        for (const ReturnedAdapter& r : report.returned) {
            Decisions back;
            back.updates = {{first, heard[first]}};
            back.given = {{1, first, r.checkpoint}};
            back.ended = {first};
            decide(back);
        }
    };
    end_after({first});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(heard[first].status, AdapterStatus::stopped);
    EXPECT_LT(heard[first].steps, 12);
    EXPECT_EQ(ranks->steps(first), heard[first].steps) << "it takes no step more";
    EXPECT_EQ(exported_step(first), heard[first].steps);
}

// ---- stops

TEST_F(DispatchedRun, AStoppedWorkerSavesRestsAndIsHeardOf) {
    add(40);
    cut_windows(2);
    make();
    give(first);
    before(first, 3, [this] { ranks->signal = 10; });
    bool stopped = false;
    std::vector<AdapterId> saved;
    answer = [&](const WorkerReport& report) {
        if (!report.saved.empty()) saved = report.saved;
        if (report.stopped) {
            EXPECT_EQ(*report.stopped, "signal SIGUSR1 received");
            EXPECT_EQ(saved, (std::vector<AdapterId>{first})) << "it has saved before";
            stopped = true;
        }
        if (stopped && report.places) end(ExitCode::stopped_resume_me);
    };
    EXPECT_EQ(run(), ExitCode::stopped_resume_me);
    EXPECT_TRUE(stopped);
    EXPECT_EQ(places.back(), 0) << "it takes no more";
    const std::string path = newest_stored(root).string();
    EXPECT_EQ(step_in(path + "/" + stored_adapter_name(job.adapter(first))), heard[first].steps);
}

TEST_F(DispatchedRun, AnOrderToEndAnAdapterIsObeyedByWhoHasIt) {
    begin_with({40, 12});
    before(first, 3, [this] {
        Decisions decisions;
        decisions.ended = {first};
        decide(decisions);
    });
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(heard[first].status, AdapterStatus::stopped);
    EXPECT_LT(heard[first].steps, 40);
    EXPECT_EQ(exported_step(first), heard[first].steps);
    EXPECT_EQ(exported_step(second), 12);
    EXPECT_EQ(ranks->streams(), 1) << "the other one trains on";
}

/// Orders about an adapter that the job has not got yet wait until it has.
TEST_F(DispatchedRun, TheJobGrowsInTheStreamBeforeWhatIsDecidedBehind) {
    add({40, 12});
    cut_windows(2);
    make();
    let_grow();
    give(first);
    give(second);
    constexpr AdapterId late{2};
    before(first, 3, [this] {
        Decisions grows;
        grows.additions = {{folder.path("inbox/late.yaml"), "30"}};
        decide(grows);
        Decisions gives;
        gives.updates = {{late, {}}};
        gives.updates[0].state.status = AdapterStatus::waiting;
        gives.given = {{1, late, ""}};
        decide(gives);
    });
    before(first, 20, [this] {
        Decisions stops;
        stops.ended = {late};
        decide(stops);
    });
    end_after({first, second, late});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(name(late), "late");
    EXPECT_EQ(heard[late].status, AdapterStatus::stopped);
    EXPECT_EQ(exported_step(late), heard[late].steps);
    EXPECT_EQ(exported_step(first), 40);
    EXPECT_EQ(ranks->streams(), 1);
}

TEST_F(DispatchedRun, AStopBehindAnAdditionIsNotLookedAtBeforeTheJobHasGrown) {
    add(40);
    cut_windows(2);
    make();
    let_grow();
    give(first);
    constexpr AdapterId late{1};
    before(first, 3, [this] {
        Decisions decisions;
        decisions.additions = {{folder.path("inbox/late.yaml"), "30"}};
        decide(decisions);
        Decisions stops;
        stops.updates = {{late, {}}};
        stops.updates[0].state.status = AdapterStatus::waiting;
        stops.given = {{1, late, ""}};
        stops.ended = {late};
        decide(stops);
    });
    end_after({first, late});
    EXPECT_EQ(run(), ExitCode::done);
    EXPECT_EQ(heard[late].status, AdapterStatus::stopped);
    EXPECT_EQ(exported_step(first), 40);
}

TEST_F(DispatchedRun, CheckpointsOfTheStreamAreReportedWithWhatTheyHold) {
    add({60, 4});
    job.checkpoint.every_steps = 6;
    make();
    give(first);
    give(second);
    std::int32_t steps_in_six = 0;
    before(first, 10, [&] {  // it is written while others train
        while (!has(root + "/6")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        steps_in_six = stored_state(root + "/6", job).adapters[0].steps;
    });
    std::vector<std::vector<AdapterId>> saved;
    answer = [&](const WorkerReport& report) {
        if (!report.saved.empty()) saved.push_back(report.saved);
    };
    end_after({first, second});
    EXPECT_EQ(run(), ExitCode::done);
    ASSERT_FALSE(saved.empty());
    EXPECT_EQ(saved[0], (std::vector<AdapterId>{first})) << "the other one had ended";
    EXPECT_EQ(steps_in_six, 6);
}

}  // namespace
}  // namespace loratrain::test
