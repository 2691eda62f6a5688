#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "measure/makespan_check.h"
#include "train/adapter_table.h"
#include "train/records/journal.h"
#include "train/service.h"
#include "train/stream_planner.h"
#include "train/trainer_parts.h"
#include "train/worker_ranks.h"

namespace loratrain {

/// Trains streams of windows, and plans ahead.

/// Seconds after the start of a window at which planning of the next one begins. The window is
/// expected to take `expected` seconds, planning `planning`. 0 for short windows. For long windows
/// planning begins late, so that orders which people give meanwhile count from the next window on,
/// not one window later.
double planning_delay(double expected, double planning);

/// Trains streams of windows; a stream goes from one empty pipeline to the next. Each window is
/// planned and sent while the one before trains, and takes about two seconds, so that orders and
/// stops wait no longer. All other tasks belong to services. Values that services ask of ranks come
/// back through Service::on_part. Rank 0 of a worker only.
class StreamTrainer {
  public:
    /// The arguments outlive it.
    StreamTrainer(const RunParts& parts, const AdapterTable& adapters, WorkerRanks& ranks,
                  Journal& journal);
    /// Services in the order in which they are called. They outlive the trainer.
    void serve(std::vector<Service*> services) { services_ = std::move(services); }

    /// Trains the running adapters, and those that join, until services end the stream. Returns the
    /// round reached. All evaluations and parts of adapters have come by then.
    std::int32_t run();

    /// With an empty pipeline: results by adapter of a window that has evaluations only. Services
    /// do not see them.
    std::vector<EvalResult> evaluate(const JointWindow& window);
    /// With an empty pipeline: rank 0 executes its part of all orders, and services get the values
    /// that they asked for.
    void finish_orders();

    // Orders; their values come back through Service::on_part.

    void send_parameters(AdapterId adapter);  ///< PartUse::exported
    void copy_states(const std::vector<AdapterId>& adapters);
    void keep_parameters(const std::vector<AdapterAtStep>& adapters);

    /// Batches trained in this start of the run.
    std::int64_t batches_done() const { return batches_done_; }
    double seconds_since_last_window() const { return seconds_since(window_started_); }
    const PlanningRecord& planning() const { return planning_; }
    /// Comparison of predicted and measured training time.
    const MakespanCheck& makespan() const { return makespan_; }

  private:
    using Clock = std::chrono::steady_clock;

    /// A batch that some stage has not stepped.
    struct OpenBatch {
        AdapterId adapter{};
        std::size_t stages_left = 0;
        bool last_of_adapter = false;
    };

    /// (adapter, step, EvalResult::training)
    using EvaluationKey = std::tuple<AdapterId, std::int32_t, bool>;
    /// Reports of replicas on one evaluation. They may come before its window trains here.
    struct OpenEvaluation {
        std::size_t replicas = 0;  ///< that report on it; 0 = not known yet
        std::map<std::int32_t, EvalResult> parts;
    };

    // Questions to all services.
    bool any(bool (Service::*question)() const) const;
    bool awaits_results(std::int32_t round) const;
    bool needs_drain(std::int32_t round) const;
    std::optional<StreamChange> change(const Progress& planned) const;
    std::int32_t last_round(const Progress& planned) const;
    std::int32_t most_rounds(const Progress& planned) const;
    std::vector<AdapterId> deciding(const Progress& planned) const;
    bool grow() const;

    PipelineRunner::Hooks hooks(StreamPlanner* planner);
    void plan_next_in_time(const StreamPlanner& planner);
    void wait_to_plan(const StreamPlanner& planner);
    void plan_next(StreamPlanner& planner);
    std::int32_t rounds_of_next(double most_seconds) const;
    PlannedWindow next_window(StreamPlanner& planner);
    void check_arrived(const Window& window) const;
    void order(PlannedWindow window);
    std::int32_t ranks_that_copy() const;
    void look_after(StreamPlanner& planner);
    void train(const JointWindow& window, const PipelineRunner::Hooks& hooks);
    void note_change(const StreamChange& change);
    void note_last_batch(AdapterId adapter);
    void note_batches(const JointWindow& window);
    void note_step(std::int32_t batch);
    void note_evaluations(const JointWindow& joint);
    void take_part(const EvalResult& part);
    void report_complete_evaluations();
    /// With what others send, the journal and what is reported.
    void keep_up();
    void take_reports();
    void wait_for_reports();
    void report_parts(PartUse use);

    const RunParts& parts_;
    const AdapterTable& adapters_;
    WorkerRanks& ranks_;
    Journal& journal_;
    std::vector<Service*> services_;
    MakespanCheck makespan_;
    PlanningRecord planning_;
    std::optional<PlannedWindow> ordered_;  ///< the next window, if it is sent already
    StreamChange change_before_planned_;
    StreamChange change_before_ordered_;
    std::function<void()> plan_next_;  ///< starts planning of the next window; empty once started
    Clock::time_point plan_next_at_;
    bool looked_for_orders_ = false;  ///< since that time
    Clock::time_point window_started_ = Clock::now();
    std::int64_t batches_done_ = 0;
    std::int32_t newest_round_ = 0;                             ///< of the batches done
    std::map<EvaluationKey, OpenEvaluation> open_evaluations_;  ///< some reports are missing
    std::vector<EvalResult>* asked_evaluations_ = nullptr;      ///< evaluate()'s results
    std::map<std::int32_t, OpenBatch> open_batches_;            ///< by number in the stream
    std::vector<AdapterId> stepped_;  ///< all their steps are taken by the end of the window
    AdapterParts parts_to_come_;
    double seconds_per_round_ = 0.0;  ///< in the current or last stream; 0 = not known
};

}  // namespace loratrain
