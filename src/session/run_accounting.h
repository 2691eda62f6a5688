#pragma once

#include <optional>
#include <string>

#include "base/task_progress.h"
#include "comm/mpi_session.h"
#include "io/run_files/run_account.h"
#include "measure/phase_labels.h"
#include "plan/plan.h"

namespace loratrain {

/// Gathers the account of a run from all ranks.

/// Names of a session's phases (PhaseTimes) that the account knows; all others are its start.
inline constexpr const char* planning_phase = "plan";
inline constexpr const char* cost_phase = "costs";
inline constexpr const char* training_phase = "training";

/// What a rank computes on.
struct RankDevice {
    std::string name = "cpu";  ///< or "NVIDIA H200"
    std::string place{};       ///< the host and the GPU's bus id; ranks with the same share a GPU
};

/// What a rank brings to the account of a run.
struct RankAccount {
    PhaseSeconds seconds{};
    KindSeconds forward{};
    KindSeconds backward{};
    double wall_seconds = 0.0;
    double training_seconds = 0.0;
    double tokens = 0.0;   ///< of trained microbatches; 0 but on lane 0 of a first stage
    double squares = 0.0;  ///< the same
    RankDevice device{};
    std::optional<double> joules{};  ///< of this GPU; none: its power was not sampled
};

/// A rank's: `times` from the start of its session to the end of training_phase, of which `work`
/// has what it knows. The rest is RunPhase::other, so that all phases add up to the wall time.
RankAccount account_of_rank(const PhaseTimes& times, const PhaseAccount& work);

/// The account of these ranks. A GPU that several ranks use counts once. The device is that of the
/// first rank (RankAccount::device). `tokens`: trained in this start.
RunAccount account_of_run(const std::vector<RankAccount>& ranks, const Plan& plan, double tokens);

/// The same, of all ranks of `world`, for its root. Collective.
RunAccount gather_account(const MpiSession& world, const Plan& plan, const RankAccount& own,
                          double tokens);

}  // namespace loratrain
