#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/costs.h"
#include "plan/plan.h"
#include "plan/sweep/trial_load.h"

namespace loratrain {

/// Costs of trials in one replica of a sweep.

/// Costs of a trial of a class in one replica.
struct TrialCosts {
    std::int32_t steps = 0;
    double samples = 0.0;             ///< of a step
    double tokens = 0.0;              ///< of a step
    std::vector<double> rows;         ///< per stage: seconds of a step's rows, without fixed costs
    std::vector<double> step;         ///< per stage: seconds of an optimizer step
    double evaluation = 0.0;          ///< seconds of one, at its end
    std::vector<std::int32_t> rungs;  ///< steps after which it is evaluated before its end
    double rung_evaluation = 0.0;     ///< seconds of an evaluation at a rung
    std::uint64_t bytes = 0;          ///< while it trains, on the stage with least memory
    std::uint64_t export_bytes = 0;   ///< of its exported weights

    /// Seconds of the whole trial on a stage, without fixed costs.
    double seconds_on(std::size_t stage) const { return steps * (rows[stage] + step[stage]); }
};

/// One replica of a sweep's deployment. Its costs are linear functions of the trials in it.
struct SweepReplica {
    std::int32_t tensor = 1;
    std::int32_t stages = 1;
    std::int64_t microbatch_tokens = 0;  ///< T
    Recompute recompute = Recompute::none;
    bool streams = false;             ///< some layers stream, since the base does not fit
    std::vector<double> fixed;        ///< f, per stage: seconds of a microbatch without rows
    std::vector<HostLine> host;       ///< per stage: least seconds of a microbatch by its host
    double messages = 0.0;            ///< seconds of a microbatch's messages
    std::uint64_t room = 0;           ///< bytes for trials; 0 = not limited
    std::vector<TrialCosts> classes;  ///< per class of trials

    std::int32_t ranks() const { return tensor * stages; }
    bool holds(std::uint64_t bytes) const { return room == 0 || bytes <= room; }
};

/// The costs of `plan`'s only replica, whose stages have whole layers.
/// - Seconds: stage_seconds() with plan.costs, where each trial is a segment of one microbatch per
///   step. Costs are fitted with adapters of rank 16 on all linears, so products of further
///   parameters are added: 6 FLOP per parameter and token, at 445/574 of the rate of the base's 4
///   FLOP.
/// - Room: what stage_memory() leaves of plan.bytes_per_rank, on the stage with the least room for
///   its layers.
SweepReplica sweep_replica(const Job& job, const Plan& plan, const TrialClasses& trials);

/// Sums over the trials that train in a replica at a time.
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

/// Seconds of a round of the trials; 0 without trials. m microbatches take
///   max(m x slowest stage, full depth).
/// A stage takes max(fixed + rows / m, its host's seconds) per microbatch, and its optimizer steps.
/// Full depth: one microbatch through all stages and messages. The best m with
/// ceil(tokens / T) <= m <= samples counts.
double round_seconds(const SweepReplica& replica, const ResidentTrials& trials);

/// Seconds to drain and fill a pipeline: the full depth less its slowest stage.
double drain_seconds(const SweepReplica& replica, const ResidentTrials& trials);

/// Seconds of the trial alone in the replica, without evaluations.
double alone_seconds(const SweepReplica& replica, const TrialCosts& trial);

}  // namespace loratrain
