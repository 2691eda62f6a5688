#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "comm/command_channel.h"
#include "train/executor.h"
#include "train/mpi_worker_ranks.h"
#include "train/trainer_parts.h"
#include "train/worker_loop.h"

namespace loratrain {

/// The training of a worker on every rank of it: rank 0 decides (worker_loop.h), every rank
/// performs the same commands in the same order (executor.h). Construction and destruction are
/// collective.
class Trainer {
  public:
    explicit Trainer(const TrainerParts& parts);

    /// Continues from a loaded checkpoint instead of the start. `set_back`: it may be older than
    /// the newest one, which therefore is replaced before anything else.
    void restore(const RunState& state, bool set_back);

    /// Trains to the end or to a stop. Collective. Failures end the whole job (second error
    /// regime).
    ExitCode run();

    RunState state() const;  ///< root only
    /// After run(): the run is to go on from its checkpoint in another deployment.
    bool goes_on() const { return goes_on_; }
    /// Why run() ended with ExitCode::stopped_resume_me; "" on other ranks than the root.
    std::string stop_reason() const;
    /// Predicted against measured time of training; "" = nothing to compare, or not the root.
    std::string makespan_text() const;

  private:
    /// Rank 0.
    struct Lead {
        Lead(const TrainerParts& parts, Executor& executor, CommandChannel& channel)
            : ranks(parts, executor, channel), loop(parts, ranks) {
            ranks.meanwhile([this] { loop.beat(); });
        }
        MpiWorkerRanks ranks;
        WorkerLoop loop;
    };

    ExitCode lead(int signal);
    ExitCode follow(int signal);

    TrainerParts parts_;
    CommandChannel channel_;
    Executor executor_;
    std::optional<Lead> lead_;  ///< root only
    bool goes_on_ = false;
};

}  // namespace loratrain
