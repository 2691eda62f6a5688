#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/services/services.h"
#include "train/workers/dispatcher.h"

namespace loratrain {

/// Main loop of a worker, on its rank 0: decides who trains, and when to evaluate, save, export,
/// take orders and end. Training is one stream of windows (stream_trainer.h) until something needs
/// an empty pipeline. Tasks beside training are services (services/services.h). A joint run is one
/// worker that trains everything; its dispatcher is here too.
class WorkerLoop {
  public:
    /// The arguments outlive it.
    WorkerLoop(const RunParts& parts, WorkerRanks& ranks);

    /// Trainer::restore.
    void restore(const RunState& state, bool set_back);
    /// Trains to the end or to a stop, and finishes the other ranks. `signal`: the first signal
    /// that came to any rank; 0 = none.
    ExitCode run(int signal);
    /// Records why run() has thrown.
    void record_failure(const std::string& why) { services_.dispatch.record_failure(why); }

    RunState state() const { return services_.dispatch.state(); }
    /// After run(): the remaining adapters continue in another deployment.
    bool redeploys() const { return services_.dispatch.redeploys(); }
    /// Why run() ended with ExitCode::stopped_resume_me.
    const std::string& stop_reason() const { return services_.dispatch.stop_reason(); }
    /// Trained in this start (Journal::tokens).
    std::int64_t tokens() const { return worker_.journal.tokens(); }
    const MakespanCheck& makespan() const { return worker_.stream.makespan(); }
    /// Heartbeat during long work.
    void beat() { worker_.journal.beat(); }

  private:
    std::vector<AdapterId> train();
    void end_adapters(const std::vector<AdapterId>& trained);
    void log_planning() const;

    /// The dispatcher of a joint run.
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
