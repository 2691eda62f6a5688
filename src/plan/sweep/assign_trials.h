#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// Assigns the trials of a sweep to replicas.

/// Assignment of trials to equal replicas: who trains which trials, in what order.
struct TrialAssignment {
    std::vector<std::vector<std::int32_t>> queues;  ///< per replica the class of each trial
    std::vector<double> seconds;                    ///< per replica
    double makespan() const;
};

/// Limits of the search for a better assignment. All are deterministic.
struct AssignLimits {
    std::int64_t simulated_trials = 4'000'000;  ///< in moves and swaps, summed over queues
    std::int64_t nodes = 1000;                  ///< of the MILP's branch and bound; 0 = none
    /// Most integer columns of the MILP; with more it is left out.
    std::int64_t columns = 200;
};

/// Assigns `counts` trials of each class to `replicas` (1 or more) replicas equal to `replica`.
/// Every queue is in class order, longest trials first. Steps:
/// 1. contiguous partition: bisection of the makespan. Each replica in turn takes as many
///    trials as end in time, by falling steps and tokens per step. So trials with many steps are
///    together: a replica has at least as many rounds as any of its trials has steps;
/// 2. moves and swaps of trials between the replica that ends last and another, while both end
///    earlier;
/// 3. MILP over n_cg, the trials of class c on replica g. Its solutions are simulated.
///    Minimise z with
///      z >= f M_g + sum_c n_cg (steps_c (rows_c + step_c) + beside_c),   M_g >= steps_c where n_cg
///      > 0, M_g >= sum_c n_cg steps_c tokens_c / T,   M_g >= sum_c n_cg steps_c bytes_c / room,
///    for every stage; the cutoff is the best of steps 1 and 2.
/// Depends on the arguments only, and on whether there is a solver (milp_available()).
TrialAssignment assign_trials(const SweepReplica& replica, const SweepRules& rules,
                              std::span<const std::int32_t> counts, std::int32_t replicas,
                              const AssignLimits& limits = {});

/// Step 1 only.
TrialAssignment contiguous_assignment(const SweepReplica& replica, const SweepRules& rules,
                                      std::span<const std::int32_t> counts, std::int32_t replicas);

}  // namespace loratrain
