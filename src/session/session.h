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
#include "session/run_accounting.h"
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

/// A session: one job on one group of ranks.

/// What a session hands to the next session of its run.
struct FormerSession {
    Cluster cluster;
    StopConditions stop;
    std::chrono::steady_clock::time_point ended;  ///< its training
};

/// One job on one group of ranks, from its files to the end of its training. A session has its own
/// job, plan, run directory, backend, links, stage, watchdog and trainer. It communicates within
/// its MpiSession only, so that several sessions may work side by side.
///
/// A rank is in one session at a time, since the process has one log (base/log.h), one current
/// activity (base/activity.h), stop signals (train/orders/stop_request.h), exit file and malloc.
/// Failures of the second error regime end the program with all its sessions (MpiSession::abort).
///
/// Each worker (worker_group.h) is a session. The root of the first one has the run directory and
/// the dispatcher (train/workers/dispatcher.h), which gives adapters to all workers. A run that
/// continues in another deployment (session/redeployment.h) does so in a new session, as if its
/// command had been given again.
///
/// The phases are called in this order. Each is collective and throws on all ranks or on none.
class Session {
  public:
    /// From here the ranks watch each other, and time limits count. `mpi` and `command_line`
    /// outlive the session. `former`: from the former session of this run, if there was one.
    Session(const MpiSession& mpi, const CommandLine& command_line, Job job,
            const std::optional<FormerSession>& former = {});
    /// A worker of `group`, which outlives the session. The phases are collective over all workers.
    Session(const WorkerGroup& group, const CommandLine& command_line, Job job);
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    /// The root opens the job's files, plans with built-in costs, takes the run directory and finds
    /// the checkpoint to continue from. `begun`: what the root has already.
    void open(BegunSession begun = {});
    /// Looks up or measures costs, plans with them, and broadcasts the plan.
    void settle_plan();
    /// Makes the backend, the links between ranks, and this rank's stage with its weights.
    void build();
    /// Loads the checkpoint, and writes the files that the run directory has before the first step.
    void begin();
    /// Trains to the end or a stop, and writes how the run ended.
    ExitCode train();
    /// After train(): for the next session of the run; none if the run has ended.
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
    /// Finds the deployment if the job asks for that, and plans; a continued run keeps both. Root
    /// only.
    void plan_with_built_in_costs(const ModelSpec& model);
    /// The same for the adapters that a checkpoint leaves, in another deployment if that pays.
    void plan_the_rest(const ModelSpec& model);
    /// Makes the plan again with measured costs. Root only.
    void plan_with_costs();
    void open_stage_inputs();
    void build_stage();
    /// Measures transfers of layers on this machine while all ranks read at once.
    void measure_transfers();
    void leave_shared_layers();
    void watch_the_end() const;
    void make_sampler();
    std::uint64_t other_memory() const;
    void restore();
    void write_start(const std::string& devices);
    /// After a checkpoint, so that a start that is killed leaves something. Root only.
    void keep_account();
    RankAccount own_account(const PhaseTimes& times);
    std::int64_t trained_tokens() const;
    void write_end(const std::string& reason);

    const MpiSession& mpi_;
    const WorkerGroup* group_;  ///< null without workers
    const CommandLine& command_line_;
    Job job_;
    StopConditions stop_;
    PhaseTimes times_;
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
    RankDevice device_;
    std::optional<DeviceSampler> sampler_;
    std::optional<Trainer> trainer_;
};

}  // namespace loratrain
