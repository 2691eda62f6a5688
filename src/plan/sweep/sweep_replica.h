#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/sweep/trial_load.h"

namespace loratrain {

/// What a trial of a class takes of one replica.
struct TrialCosts {
    std::int32_t steps = 0;
    double samples = 0.0;             ///< of a step
    double tokens = 0.0;              ///< of a step
    std::vector<double> rows;         ///< per stage: seconds of a step's rows beside fixed costs
    std::vector<double> step;         ///< per stage: seconds of an optimizer step
    double evaluation = 0.0;          ///< seconds of one, at its end
    std::vector<std::int32_t> rungs;  ///< steps after which it is evaluated before
    double rung_evaluation = 0.0;     ///< seconds of one there
    std::uint64_t bytes = 0;          ///< that it takes while it trains, where memory is shortest
    std::uint64_t export_bytes = 0;   ///< of its exported weights

    /// Rows and steps of the whole trial on a stage.
    double seconds_on(std::size_t stage) const { return steps * (rows[stage] + step[stage]); }
};

/// One replica of a sweep's deployment, its costs as linear functions of the trials in it.
struct SweepReplica {
    std::int32_t tensor = 1;
    std::int32_t stages = 1;
    std::int64_t microbatch_tokens = 0;  ///< T
    Recompute recompute = Recompute::none;
    bool streams = false;        ///< some of its layers do: the base alone does not fit
    std::vector<double> fixed;   ///< f, per stage: seconds of a microbatch without rows
    std::vector<HostLine> host;  ///< per stage: what the host takes for one at least, by trials
    double messages = 0.0;       ///< seconds that messages take on a microbatch's way
    std::uint64_t room = 0;      ///< bytes for trials; 0 = not limited
    std::vector<TrialCosts> classes;  ///< per class of trials

    std::int32_t ranks() const { return tensor * stages; }
    bool holds(std::uint64_t bytes) const { return room == 0 || bytes <= room; }
};

/// The replica of `plan` (its only one, stages of whole layers) in numbers. Seconds are
/// stage_seconds() of plan.costs, where each trial is a segment of one microbatch in a step; on top
/// of it the products of the adapters' own parameters, 6 FLOP for each and token, beyond those of
/// adapters of rank 16 on all linears that costs are fitted with, at 445/574 of the rate of the
/// base's 4 FLOP. The room is what stage_memory() leaves of plan.bytes_per_rank, on the stage where
/// it is least for its layers.
SweepReplica sweep_replica(const Job& job, const Plan& plan, const TrialClasses& trials);

/// The trials that train in a replica at a time, summed.
struct ResidentTrials {
    explicit ResidentTrials(const SweepReplica& replica)
        : rows(replica.fixed.size()), step(replica.fixed.size()) {}
    void add(const TrialCosts& trial) { change(trial, 1.0); }
    void remove(const TrialCosts& trial);

    std::int32_t count = 0;
    double samples = 0.0;
    double tokens = 0.0;
    std::uint64_t bytes = 0;
    std::vector<double> rows;  ///< per stage
    std::vector<double> step;  ///< per stage

  private:
    void change(const TrialCosts& trial, double sign);
};

/// Seconds of a round of the trials: m microbatches, ceil(tokens / T) <= m <= samples, take
///   max(m x slowest stage, full depth),
/// where a stage takes fixed + rows / m for one, or what its host takes where that is more, and its
/// optimizer steps beside them; the full depth is one microbatch's way through all stages and
/// messages. The best m counts. 0 without trials.
double round_seconds(const SweepReplica& replica, const ResidentTrials& trials);

/// Seconds in which a pipeline runs empty and fills again: the full depth less its slowest stage.
double drain_seconds(const SweepReplica& replica, const ResidentTrials& trials);

/// Seconds of the trial alone in the replica, without evaluations.
double alone_seconds(const SweepReplica& replica, const TrialCosts& trial);

}  // namespace loratrain
