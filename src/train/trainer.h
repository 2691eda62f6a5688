#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/loader.h"
#include "plan/plan_window.h"
#include "train/checkpoint.h"
#include "train/makespan_check.h"
#include "train/metrics.h"
#include "train/pipeline_runner.h"
#include "train/progress.h"
#include "train/run_records.h"
#include "train/stop_conditions.h"

namespace loratrain {

/// What a rank brings to training; all of it outlives the trainer.
struct TrainerParts {
    const MpiSession& mpi;
    const Job& job;
    const Plan& plan;
    Stage& stage;
    PipelineRunner& runner;
    Loader& loader;
    const std::vector<DatasetInfo>& datasets;  ///< root only, else empty
    const RunIdentity& identity;
    StopConditions& stop;
    TraceRecorder& recorder;
};

/// The training loop. Rank 0 conducts: it plans the next window, broadcasts it, decides on
/// evaluations, checkpoints, exports and the end; every rank performs the same directives in order.
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
        finish = 'f',
    };

    ExitCode conduct();
    ExitCode follow();
    /// Root: tells every rank, then performs.
    void issue(Directive directive, const std::string& argument = "");
    void perform(Directive directive, const std::string& argument);
    void train(const Window& window);
    void evaluate(const Window& window);
    /// All stages' tensors, on the root; collective.
    std::vector<NamedTensor> gather_parameters(AdapterId adapter);
    void export_adapter(AdapterId adapter);
    void keep_best(AdapterId adapter);

    void start_run();
    void flush_metrics();
    void train_window();
    std::int32_t rounds_ahead() const;
    void on_batch(const Window& window, const BatchResult& result);
    void settle_window(const Window& window);
    std::string failure_of(std::size_t adapter) const;
    void evaluate_adapters(const std::vector<AdapterId>& adapters);
    void judge_evaluations(const std::vector<AdapterId>& adapters);
    std::vector<AdapterId> running_adapters() const;
    bool checkpoint_due() const;
    std::string reason_to_stop(bool trained) const;
    void save();
    double elapsed() const;

    TrainerParts parts_;
    MetricsLog metrics_;
    ProgressLog progress_;
    RunRecords records_;
    MakespanCheck makespan_;
    RunState state_;
    int stop_signal_ = 0;
    std::string stop_reason_;
    bool fresh_ = true;
    bool set_back_ = false;
    double seconds_before_ = 0.0;
    std::chrono::steady_clock::time_point started_;
    std::chrono::steady_clock::time_point last_checkpoint_;
    std::vector<double> last_batch_time_;
    double seconds_per_round_ = 0.0;
};

}  // namespace loratrain
