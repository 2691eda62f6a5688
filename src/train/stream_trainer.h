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

/// Seconds into a window that is expected to take `expected` at which to plan the next, which takes
/// `planning`: at once, or where a window is so long that people who give orders would wait for it,
/// late, so that what they order meanwhile is obeyed when it ends and not one window later.
double planning_delay(double expected, double planning);

/// Trains streams of windows, each from an empty pipeline to the next: a window is planned and
/// ordered while the one before trains, and made so long that an order or a stop waits for about
/// two seconds. What else is to be done meanwhile is up to services. What they ask of ranks comes
/// back to them through Service::on_part, in a stream and between streams alike. Rank 0 of a worker
/// only.
class StreamTrainer {
  public:
    /// The arguments outlive it.
    StreamTrainer(const RunParts& parts, const AdapterTable& adapters, WorkerRanks& ranks,
                  Journal& journal);
    /// They are asked and called in this order, and outlive the trainer.
    void serve(std::vector<Service*> services) { services_ = std::move(services); }

    /// Trains those that are running, and those that come, until services end the stream; returns
    /// the round reached. All evaluations and parts of adapters have come by then.
    std::int32_t run();

    /// With an empty pipeline: a window that has evaluations alone. Results by adapter, which
    /// services do not see.
    std::vector<EvalResult> evaluate(const JointWindow& window);
    /// With an empty pipeline: rank 0 performs what was ordered, and services get what was asked
    /// for.
    void finish_orders();

    // Orders whose values come back through Service::on_part.

    void send_parameters(AdapterId adapter);  ///< PartUse::exported
    void copy_states(const std::vector<AdapterId>& adapters);
    void keep_parameters(const std::vector<AdapterAtStep>& adapters);

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
    /// What replicas have reported of one, which may come before its window trains here.
    struct OpenEvaluation {
        std::size_t replicas = 0;  ///< that tell of it; 0 = not known yet
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
    std::optional<PlannedWindow> ordered_;  ///< the next window, when it is on its way already
    StreamChange change_before_planned_;
    StreamChange change_before_ordered_;
    std::function<void()> plan_next_;  ///< what starts on the next window, until it has
    Clock::time_point plan_next_at_;
    bool looked_for_orders_ = false;  ///< as that time came
    Clock::time_point window_started_ = Clock::now();
    std::int64_t batches_done_ = 0;
    std::int32_t newest_round_ = 0;                             ///< of the batches done
    std::map<EvaluationKey, OpenEvaluation> open_evaluations_;  ///< of which not all has come
    std::vector<EvalResult>* asked_evaluations_ = nullptr;      ///< of evaluate()
    std::map<std::int32_t, OpenBatch> open_batches_;            ///< by number in the stream
    std::vector<AdapterId> stepped_;  ///< of the stream, by the end of the window
    AdapterParts parts_to_come_;
    double seconds_per_round_ = 0.0;  ///< of the stream under way or the last one; 0 = not known
};

}  // namespace loratrain
