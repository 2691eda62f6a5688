#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/sweep_replica.h"

namespace loratrain {

/// Simulates a queue of trials in one replica.

/// What happens beside the steps of trials.
struct SweepRules {
    bool evaluates = true;  ///< trials with eval samples are evaluated at rungs and at their end
    double export_bytes_per_second = 0.0;  ///< of exports; 0 = they take no time
    /// True: the next trial takes a free place. False: a replica takes as many trials as it holds
    /// once all before them have ended (PLoRA's packed job, Alg. 2).
    bool refills = true;
};

/// Seconds of a trial's evaluations and export.
double beside_seconds(const SweepRules& rules, const TrialCosts& trial);

struct TrialSpan {
    double begin = 0.0;  ///< seconds
    double end = 0.0;
};

/// Simulated run of a queue of trials in one replica.
struct QueueRun {
    double seconds = 0.0;
    std::vector<TrialSpan> spans;  ///< per trial of the queue
};

/// Simulates a queue of trials in a replica from event to event. Between events all trials that
/// train take one step per round (round_seconds). Events are ends and rungs of trials: the pipeline
/// drains once (drain_seconds); these trials are evaluated, and the ended ones exported, one after
/// another; the next trials of the queue begin, in order, while they fit beside the others. A trial
/// that fits nowhere trains alone. The evaluation of the base before the first step is left out.
/// `queue`: class of each trial.
QueueRun simulate_sweep(const SweepReplica& replica, const SweepRules& rules,
                        std::span<const std::int32_t> queue);

/// QueueRun::seconds only.
double sweep_seconds(const SweepReplica& replica, const SweepRules& rules,
                     std::span<const std::int32_t> queue);

}  // namespace loratrain
