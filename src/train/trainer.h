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

/// Training of a worker, on all its ranks: rank 0 decides (worker_loop.h), every rank executes the
/// same commands in the same order (executor.h). Construction and destruction are collective.
class Trainer {
  public:
    explicit Trainer(const TrainerParts& parts);

    /// Continues from a loaded checkpoint. `set_back`: newer checkpoints may exist, so the first
    /// thing to do is to write a new one.
    void restore(const RunState& state, bool set_back);

    /// Trains to the end or to a stop. Failures end the whole job (design.md "Two error regimes").
    /// Collective.
    ExitCode run();

    RunState state() const;  ///< root only
    /// After run(): the run continues from its checkpoint in another deployment.
    bool goes_on() const { return goes_on_; }
    /// Why run() ended with ExitCode::stopped_resume_me; "" on ranks other than 0.
    std::string stop_reason() const;
    /// Tokens that a joint run has trained in this start; 0 on ranks other than 0.
    std::int64_t tokens() const { return lead_ ? lead_->loop.tokens() : 0; }
    /// Predicted and measured training time; "" if there is nothing to compare, or not on rank 0.
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
