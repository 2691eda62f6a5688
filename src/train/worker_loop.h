#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/services/services.h"
#include "train/workers/dispatcher.h"

namespace loratrain {

/// Rank 0 of a worker: decides who trains, and when to evaluate, to save, to export, to take orders
/// and to end. Training goes on as one stream of windows (stream_trainer.h) until something needs
/// an empty pipeline; what is done beside it are services (services/services.h). A joint run is one
/// worker that trains everything, and whose dispatcher is here too.
class WorkerLoop {
  public:
    /// The arguments outlive it.
    WorkerLoop(const RunParts& parts, WorkerRanks& ranks);

    /// Trainer::restore.
    void restore(const RunState& state, bool set_back);
    /// Trains to the end or to a stop, and finishes the other ranks. `signal`: that came to any
    /// rank so far, 0 = none.
    ExitCode run(int signal);
    /// run() has thrown: records why.
    void record_failure(const std::string& why) { services_.dispatch.record_failure(why); }

    RunState state() const { return services_.dispatch.state(); }
    /// After run(): what is left is to be trained in another deployment.
    bool redeploys() const { return services_.dispatch.redeploys(); }
    /// Why run() ended with ExitCode::stopped_resume_me.
    const std::string& stop_reason() const { return services_.dispatch.stop_reason(); }
    const MakespanCheck& makespan() const { return worker_.stream.makespan(); }
    /// A sign of life, for what takes long.
    void beat() { worker_.journal.beat(); }

  private:
    std::vector<AdapterId> train();
    void end_adapters(const std::vector<AdapterId>& trained);
    void log_planning() const;

    /// Of a joint run.
    struct OwnDispatcher {
        explicit OwnDispatcher(Worker& worker);
        Dispatcher dispatcher;
        DispatcherLink link;
    };

    Worker worker_;
    std::optional<OwnDispatcher> own_;
    Services services_;
    bool set_back_ = false;
};

}  // namespace loratrain
