#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/sweep_replica.h"

namespace loratrain {

/// What happens beside training.
struct SweepRules {
    bool evaluates = true;  ///< every trial at rungs and its end, if its dataset has eval samples
    double export_bytes_per_second = 0.0;  ///< of every trial at its end; 0 = takes no time
    /// Whether a place that is freed is taken by the next trial; else a replica takes as many as it
    /// holds when all before them have ended (the packed job of PLoRA, Alg. 2).
    bool refills = true;
};

/// Seconds of a trial's evaluations and export.
double beside_seconds(const SweepRules& rules, const TrialCosts& trial);

struct TrialSpan {
    double begin = 0.0;  ///< seconds
    double end = 0.0;
};

/// What became of a queue of trials in one replica.
struct QueueRun {
    double seconds = 0.0;
    std::vector<TrialSpan> spans;  ///< per trial of the queue
};

/// Plays trials in a replica from event to event: between them all that train take one step a round
/// (round_seconds). Events are trial ends and rungs; there a pipeline drains once (drain_seconds),
/// then those trials are evaluated, and the ended ones exported, one after another; and the next of
/// the queue begin, in order, as long as they fit beside the others. A trial that fits nowhere
/// trains alone. `queue`: the class of each trial. The evaluation of the base before the first step
/// is not in it.
QueueRun simulate_sweep(const SweepReplica& replica, const SweepRules& rules,
                        std::span<const std::int32_t> queue);

/// Its seconds alone.
double sweep_seconds(const SweepReplica& replica, const SweepRules& rules,
                     std::span<const std::int32_t> queue);

}  // namespace loratrain
