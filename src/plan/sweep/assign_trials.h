#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/sweep/simulate_sweep.h"

namespace loratrain {

/// Which of several equal replicas trains which trials, in what order.
struct TrialAssignment {
    std::vector<std::vector<std::int32_t>> queues;  ///< per replica the class of each trial
    std::vector<double> seconds;                    ///< per replica
    double makespan() const;
};

/// What ends the search for a better assignment; deterministic.
struct AssignLimits {
    std::int64_t simulated_trials = 4'000'000;  ///< of queues in moves and swaps, summed
    std::int64_t nodes = 1000;                  ///< of the MILP's branch and bound; 0 = none
    /// Integer columns beyond which the MILP is left out.
    std::int64_t columns = 200;
};

/// The trials, `counts` of each class of `replica`, on `replicas` (1 or more) of them. Every queue
/// is in class order, longest first:
/// 1. contiguous partition: bisection of the makespan; each replica in turn takes as many of the
///    trials, by falling steps and tokens a step, as end in time. So trials with many steps are
///    together: a replica has at least as many rounds as any of its trials has steps;
/// 2. moves and swaps of trials between the replica that ends last and another, as long as both end
///    earlier;
/// 3. MILP over n_cg, trials of class c on replica g, its solutions simulated: minimise z with
///      z >= f M_g + sum_c n_cg (steps_c (rows_c + step_c) + beside_c),   M_g >= steps_c where n_cg
///      > 0, M_g >= sum_c n_cg steps_c tokens_c / T,   M_g >= sum_c n_cg steps_c bytes_c / room,
///    for every stage; cutoff = what was found before.
/// Depends on the arguments alone, and on whether there is a solver (milp_available).
TrialAssignment assign_trials(const SweepReplica& replica, const SweepRules& rules,
                              std::span<const std::int32_t> counts, std::int32_t replicas,
                              const AssignLimits& limits = {});

/// Step 1 alone.
TrialAssignment contiguous_assignment(const SweepReplica& replica, const SweepRules& rules,
                                      std::span<const std::int32_t> counts, std::int32_t replicas);

}  // namespace loratrain
