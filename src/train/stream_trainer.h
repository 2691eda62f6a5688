#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/directive_channel.h"
#include "measure/makespan_check.h"
#include "train/adapter_parts.h"
#include "train/performer.h"
#include "train/records/journal.h"
#include "train/stream_planner.h"

namespace loratrain {

/// Seconds into a window that is expected to take `expected` at which to plan the next, which takes
/// `planning`: at once, or where a window is so long that people who give orders would wait for it,
/// late, so that what they order meanwhile is obeyed when it ends and not one window later.
double planning_delay(double expected, double planning);

/// Trains streams of windows, each from an empty pipeline to the next: a window is planned and
/// posted while the one before trains, and made so long that an order or a stop waits for about two
/// seconds. Where evaluations decide who goes on, the next window is planned when they have been
/// told. Rank 0 only.
class StreamTrainer {
  public:
    /// The arguments outlive it.
    StreamTrainer(const TrainerParts& parts, const AdapterTable& adapters, Performer& performer,
                  DirectiveChannel& channel, Journal& journal);

    struct Hooks {
        /// In the order in which batches end.
        std::function<void(const BatchResult&)> on_batch;
        /// Of an evaluation in the stream; may come before the batch that it is behind.
        std::function<void(const EvalResult&)> on_evaluation;
        /// Asked whenever a window is to be planned that begins with the round: whether the stream
        /// shall end before.
        std::function<bool(std::int32_t round)> drain_wanted;
        /// Asked then, where it shall not: who comes and goes before the window; none = that needs
        /// an empty pipeline. With a change, rounds follow.
        std::function<std::optional<StreamChange>(const Progress& planned)> change;
        /// Asked then: the round in which the stream ends, or a later one where somebody may come
        /// before, and how many rounds the window may have at most.
        std::function<std::int32_t(const Progress& planned)> last_round;
        std::function<std::int32_t(const Progress& planned)> most_rounds;
        /// Asked then: whose evaluations behind the window say whether they go on.
        std::function<std::vector<AdapterId>(const Progress& planned)> deciding;
        /// Whether results have to come before the window that begins with the round is planned:
        /// of evaluations before it that were said to decide.
        std::function<bool(std::int32_t round)> awaits_evaluations;
        /// Asked then, where the stream goes on: whether a checkpoint is to be written of the state
        /// before it.
        std::function<bool(std::int32_t round)> save_wanted;
        /// As that window goes out: begins the checkpoint. Whose state is to be copied.
        std::function<std::vector<AdapterId>(std::int32_t round)> begin_checkpoint;
        /// All ranks' values of a part of what is copied have come.
        std::function<void(const PartKey&, AdapterParts::ByRank)> store_part;
        /// All ranks' copies of parameters that were evaluated (StreamChange::kept) have come.
        std::function<void(const PartKey&, AdapterParts::ByRank)> store_kept;
        /// Between actions: goes on with the checkpoint, if one is being written.
        std::function<void()> go_on_saving;
        /// Asked before a window goes out, given those of whom all stages have taken the last step
        /// by then: whom of them to export.
        std::function<std::vector<AdapterId>(const std::vector<AdapterId>&)> choose_exports;
        /// Asked at the time when a window is to be planned: looks for adapters to be added, and
        /// asks the other ranks about them.
        std::function<void()> look_for_additions;
        /// Then: whether the next window is planned as late as the one before has trained, so that
        /// the run may grow before.
        std::function<bool()> waits_to_grow;
        /// Between two windows, none being planned: takes the adapters that all ranks have found
        /// good; whether there were any.
        std::function<bool()> grow;
        /// What another rank has found of them, and whether any has still to tell.
        std::function<void(const AdditionsVerdict&)> on_verdict;
        std::function<bool()> awaits_verdicts;
        /// What the other ranks have of them has come, for Performer::join.
        std::function<void(AdapterId, AdapterParts::ByRank)> export_adapter;
    };

    /// Trains those that are running, and those that come, to the run's round `last_round`, or to
    /// an earlier one where that is wanted; returns the round reached. All evaluations and exports
    /// have come by then.
    std::int32_t run(const Hooks& hooks);

    /// Since this start of the run.
    std::int64_t batches_done() const { return batches_done_; }
    double seconds_since_last_window() const { return seconds_since(window_started_); }
    const PlanningRecord& planning() const { return planning_; }
    /// Predicted against measured time of training.
    const MakespanCheck& makespan() const { return makespan_; }

  private:
    using Clock = std::chrono::steady_clock;

    /// A batch that not all stages of all replicas have stepped.
    struct OpenBatch {
        AdapterId adapter{};
        std::size_t stages_left = 0;
        bool last_of_adapter = false;
    };

    /// An adapter after so many steps; whether it is about that step's samples.
    using EvaluationKey = std::tuple<AdapterId, std::int32_t, bool>;
    /// What replicas have told of one, which may come before its window trains here.
    struct OpenEvaluation {
        std::size_t replicas = 0;  ///< that tell of it; 0 = not known yet
        std::map<std::int32_t, EvalResult> parts;
    };

    void plan_next_in_time(const StreamPlanner& planner, const Hooks& hooks);
    void wait_to_plan(const StreamPlanner& planner, const Hooks& hooks);
    void plan_next(StreamPlanner& planner, const Hooks& hooks);
    std::int32_t rounds_of_next(double most_seconds) const;
    PlannedWindow next_window(StreamPlanner& planner, const Hooks& hooks);
    void post(PlannedWindow window, const Hooks& hooks);
    void post_copies(std::int32_t round, const Hooks& hooks);
    void copy_states();
    std::int32_t ranks_that_copy() const;
    void perform(const StreamChange& change);
    void look_after(StreamPlanner& planner, const Hooks& hooks);
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks);
    void note_change(const StreamChange& change);
    void note_last_batch(AdapterId adapter);
    void note_batches(const JointWindow& window);
    void note_step(std::int32_t batch);
    void note_evaluations(const JointWindow& joint);
    void take_part(const EvalResult& part);
    void tell_complete_evaluations(const Hooks& hooks);
    /// With what others send, the journal and what is told.
    void keep_up(const Hooks& hooks);
    void take_told(const Hooks& hooks);
    void wait_for_told(const Hooks& hooks);
    void export_complete(const Hooks& hooks);

    const TrainerParts& parts_;
    const AdapterTable& adapters_;
    Performer& performer_;
    DirectiveChannel& channel_;
    Journal& journal_;
    MakespanCheck makespan_;
    PlanningRecord planning_;
    std::optional<PlannedWindow> posted_;  ///< the next window, when it is on its way already
    std::int64_t posted_number_ = 0;       ///< of the newest window's directive
    std::int64_t window_number_ = 0;       ///< of that which trains
    bool save_before_planned_ = false;     ///< a checkpoint, of the window that is being planned
    std::vector<AdapterId> copied_before_posted_;  ///< for a checkpoint
    StreamChange change_before_planned_;
    StreamChange change_before_posted_;
    std::function<void()> plan_next_;  ///< what starts on the next window, until it has
    Clock::time_point plan_next_at_;
    bool looked_for_additions_ = false;  ///< as that time came
    std::chrono::steady_clock::time_point window_started_;
    std::int64_t batches_done_ = 0;
    std::int32_t newest_round_ = 0;                             ///< of the batches done
    std::map<EvaluationKey, OpenEvaluation> open_evaluations_;  ///< of which not all has come
    std::map<std::int32_t, OpenBatch> open_batches_;            ///< by number in the stream
    std::vector<AdapterId> stepped_;  ///< of the stream, by the end of the window
    AdapterParts told_parts_;
    double seconds_per_round_ = 0.0;  ///< of the stream under way or the last one; 0 = not known
};

}  // namespace loratrain
