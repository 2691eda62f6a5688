#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/directive_channel.h"
#include "data/loader.h"
#include "measure/makespan_check.h"
#include "train/checkpoint/checkpoint.h"
#include "train/orders/grow_run.h"
#include "train/orders/inbox.h"
#include "train/orders/stop_conditions.h"
#include "train/pipeline_runner.h"
#include "train/records/metrics.h"
#include "train/records/progress.h"
#include "train/records/run_records.h"
#include "train/stream_planner.h"

namespace loratrain {

/// What a rank brings to training; all of it outlives the trainer.
struct TrainerParts {
    const MpiSession& mpi;
    Job& job;  ///< grows with what comes through the inbox, as all of the next four
    Plan& plan;
    DatasetFiles& files;
    std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    RunIdentity& identity;
    bool with_tokens;  ///< this rank reads tokens
    Stage& stage;
    PipelineRunner& runner;
    Loader& loader;
    StopConditions& stop;
    TraceRecorder& recorder;
    StatusView view;  ///< root only, may be empty
};

/// The training loop. Rank 0 conducts: it decides who trains, plans windows while the ones before
/// train, posts them, decides on evaluations, checkpoints, exports and the end; every rank performs
/// the same directives in order. Training goes on as one stream of windows until something needs an
/// empty pipeline: an evaluation, a checkpoint, an adapter that comes, goes or makes room, a stop.
class Trainer {
  public:
    explicit Trainer(const TrainerParts& parts);

    /// Continues from a loaded checkpoint instead of the start. `set_back`: it may be older than
    /// the newest one, which therefore is replaced before anything else.
    void restore(const RunState& state, bool set_back);

    /// Trains to the end or to a stop. Collective. Failures end the whole job (second error
    /// regime).
    ExitCode run();

    const RunState& state() const { return state_; }  ///< root only
    /// Why run() ended with ExitCode::stopped_resume_me; root only.
    const std::string& stop_reason() const { return stop_reason_; }
    /// Predicted against measured time of training; root only.
    const MakespanCheck& makespan() const { return makespan_; }

  private:
    enum class Directive : char {
        train = 't',
        evaluate = 'e',
        checkpoint = 'c',
        export_adapter = 'x',
        keep_best = 'b',
        admit = 'a',
        release = 'r',
        grow = 'g',
        finish = 'f',
    };

    ExitCode conduct();
    ExitCode follow();
    void report_signal();
    /// Root: tells every rank, then performs.
    void issue(Directive directive, const std::string& argument = "");
    void perform(Directive directive, const std::string& argument);
    void train(const Window& window);
    void evaluate(const Window& window);
    /// All stages' tensors, on the root; collective.
    std::vector<NamedTensor> gather_parameters(AdapterId adapter);
    void export_adapter(AdapterId adapter);
    void keep_best(AdapterId adapter);
    void grow(const std::string& argument);

    void start_run();
    void flush_metrics();

    // One stream of windows.
    void train_stream();
    Progress progress() const;
    std::int32_t rounds_to_event() const;
    void plan_next(StreamPlanner& planner);
    bool drain_wanted();
    void post_if_ready(StreamPlanner& planner);
    PlannedWindow next_window(StreamPlanner& planner);
    void on_batch(const BatchResult& result);
    bool any_failure() const;
    std::string failure_of(std::size_t adapter) const;
    void settle_stream(std::int32_t round);

    // Between streams.
    void admit_adapters();
    void evaluate_newcomers();
    void end_adapters(const std::vector<AdapterId>& before);
    void evaluate_adapters(const std::vector<AdapterId>& adapters);
    void judge_evaluations(const std::vector<AdapterId>& adapters);
    void look_for_orders();
    void obey_orders();
    bool finished();
    bool regular_evaluation() const;
    void stop_adapter(const std::string& name);
    std::vector<AdapterId> running_adapters() const;
    bool checkpoint_due() const;
    bool checkpoint_due_by_time() const;
    std::string reason_to_stop();
    void save();
    double elapsed() const;

    TrainerParts parts_;
    DirectiveChannel channel_;
    MetricsLog metrics_;
    WorkCounter work_;  ///< root only
    ProgressLog progress_;
    RunRecords records_;
    MakespanCheck makespan_;
    std::optional<Inbox> inbox_;  ///< root only
    Inbox::Orders orders_;
    std::string admitted_;            ///< the last directive admit
    std::set<std::string> stopping_;  ///< adapters whose stop files are obeyed
    std::string rejection_;           ///< why grow() failed
    RunState state_;
    int stop_signal_ = 0;  ///< root: the first that came to any rank; others: what they reported
    std::string stop_reason_;
    bool fresh_ = true;
    bool set_back_ = false;
    double seconds_before_ = 0.0;
    std::chrono::steady_clock::time_point started_;
    std::chrono::steady_clock::time_point last_checkpoint_;
    std::vector<double> last_batch_time_;
    std::vector<bool> released_;

    // Of the stream under way.
    PlanningTime planning_;
    std::optional<PlannedWindow> posted_;  ///< the next window, when it is on its way already
    std::chrono::steady_clock::time_point stream_started_;
    std::chrono::steady_clock::time_point window_started_;
    std::int32_t last_round_ = 0;  ///< the stream ends there
    std::int64_t batches_done_ = 0;
    double seconds_per_round_ = 0.0;
};

}  // namespace loratrain
