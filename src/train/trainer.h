#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "comm/directive_channel.h"
#include "train/conductor.h"
#include "train/performer.h"
#include "train/trainer_parts.h"

namespace loratrain {

/// The training of a run on every rank: rank 0 conducts (conductor.h), every rank performs the same
/// directives in the same order (performer.h). Construction and destruction are collective.
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
    ExitCode follow(int signal);
    ExitCode conduct(int signal);

    TrainerParts parts_;
    DirectiveChannel channel_;
    Performer performer_;
    std::optional<Conductor> conductor_;  ///< root only
    bool goes_on_ = false;
};

}  // namespace loratrain
