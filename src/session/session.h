#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/task_progress.h"
#include "comm/command_channel.h"
#include "comm/communicator.h"
#include "config/command_line.h"
#include "measure/device_sampler.h"
#include "measure/measured_costs.h"
#include "model/shared_layers.h"
#include "plan/deploy/make_plan.h"
#include "session/job_inputs.h"
#include "session/rank_backend.h"
#include "session/run_directory.h"
#include "session/run_way.h"
#include "session/worker_group.h"
#include "train/orders/stop_conditions.h"
#include "train/stage_run.h"
#include "train/trainer.h"
#include "train/workers/dispatcher.h"
#include "train/workers/dispatcher_link.h"
#include "watch/watchdog.h"

namespace loratrain {

/// What a session leaves to the one in which its run goes on.
struct FormerSession {
    Cluster cluster;
    StopConditions stop;
    std::chrono::steady_clock::time_point ended;  ///< its training
};

/// One job on one group of ranks, from its files to the end of its training. A session has its own
/// job, plan, run directory, backend, links, stage, watchdog and trainer; all that it says goes to
/// the ranks of its MpiSession, so that others may work beside it.
///
/// A rank is in one session at a time, as these belong to the process: the log, its file and which
/// rank prints (base/log.h), what the main thread is at (base/activity.h), stop signals
/// (train/orders/stop_request.h), the exit file, what malloc keeps. Failures of the second error
/// regime end the program with all its sessions (MpiSession::abort).
///
/// Workers (worker_group.h) are a session each; the first one's root has the run directory and the
/// dispatcher (train/workers/dispatcher.h), from which all leaders get their adapters.
/// A run that is to go on in another deployment (session/redeployment.h) does so in a session of
/// its own, as if its command had been given again.
///
/// The phases are called in this order. Each is collective and throws on all ranks or on none.
class Session {
  public:
    /// From here the ranks watch each other, and limits of time count. `mpi` and `command_line`
    /// outlive the session.
    /// `former`: the session of this run that has ended, and is gone, where this one goes on.
    Session(const MpiSession& mpi, const CommandLine& command_line, Job job,
            const std::optional<FormerSession>& former = {});
    /// A worker of `group`, which outlives it: the phases are collective over all workers.
    Session(const WorkerGroup& group, const CommandLine& command_line, Job job);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// The root opens the job's files, plans with built-in costs, takes the run directory and finds
    /// the checkpoint to continue from. `begun`: what the root has of that already.
    void open(BegunSession begun = {});
    /// Costs are looked up or measured; every rank gets the plan that is made with them.
    void settle_plan();
    /// The backend, the links between the ranks, and this rank's stage with its weights.
    void build();
    /// Continues from the checkpoint, and writes what the run directory holds before the first
    /// step.
    void begin();
    /// Trains to the end or a stop, and writes how the run ended.
    ExitCode train();
    /// After train(): for the session in which the run is to go on; none where it has ended.
    std::optional<FormerSession> former() const;

  private:
    Session(const MpiSession& mpi, const WorkerGroup* group, const CommandLine& command_line,
            Job job, const std::optional<FormerSession>& former);

    /// The ranks that the phases are collective over.
    const MpiSession& world() const { return group_ != nullptr ? group_->world() : mpi_; }
    void open_inputs(BegunSession begun);
    void open_dispatcher();
    void close_dispatcher();
    std::unique_ptr<Backend> make_backend(const Plan& plan) const;
    void take(PlannedJob planned);
    /// The deployment, where the job wants one to be found, and the plan; as those of the run that
    /// is continued. Root only.
    void plan_with_built_in_costs(const ModelSpec& model);
    /// The same for what a checkpoint leaves to be trained, in another deployment where that pays.
    void plan_the_rest(const ModelSpec& model);
    /// Makes the plan again with what is known of costs. Root only.
    void plan_with_costs();
    void open_stage_inputs();
    void build_stage();
    /// Transfers as they take on this machine, with all ranks reading at once.
    void measure_transfers();
    void leave_shared_layers();
    void watch_the_end() const;
    void make_sampler();
    std::uint64_t other_memory() const;
    void restore();
    void write_start(const std::string& devices);
    void write_end(const std::string& reason);

    const MpiSession& mpi_;
    const WorkerGroup* group_;  ///< null without workers
    const CommandLine& command_line_;
    Job job_;
    StopConditions stop_;
    PhaseTimes start_times_;
    ResidentMemory memory_before_;
    Cluster cluster_;

    JobInputs inputs_;      ///< the root's; others have what their stage reads
    RunIdentity identity_;  ///< the root's, as the next three
    std::optional<RunDirectory> directory_;
    std::optional<Plan> former_;  ///< of the run that is continued
    DeploymentRecord deployment_;
    std::optional<std::chrono::steady_clock::time_point> former_ended_;  ///< the former session
    std::chrono::steady_clock::time_point ended_;                        ///< the training
    MeasuredCosts costs_;
    std::string checkpoint_;  ///< to continue from; "" = from the start
    Plan plan_;
    PlanReport report_;  ///< the root's

    std::unique_ptr<Backend> backend_;
    std::unique_ptr<Communicator> communicator_;
    std::optional<LaneGroups> lanes_;
    std::unique_ptr<GradientExchange> exchange_;   ///< among several replicas
    std::unique_ptr<SharedLayers> shared_layers_;  ///< null: no rank has weights of others
    std::optional<StageRun> run_;
    std::optional<Watchdog> watchdog_;       ///< ends before what is above, which may take its time
    FormerRun former_run_;                   ///< of workers; the first one's root's
    std::string checkpoints_;                ///< root of a worker's checkpoints
    std::optional<CommandChannel> leaders_;  ///< of workers' roots, as the next; before the link
    std::optional<RunLedger> ledger_;        ///< of the dispatcher
    std::optional<Dispatcher> dispatcher_;   ///< the first one's root's
    std::optional<DispatcherLink> link_;
    std::optional<DeviceSampler> sampler_;
    std::optional<Trainer> trainer_;
};

}  // namespace loratrain
