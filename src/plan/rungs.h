#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "config/job.h"

namespace loratrain {

/// Steps of the warm-up, as transformers 5 reads warmup_steps: a fraction of `total_steps`, rounded
/// up to whole ones, where it is below 1. None with lr_scheduler_type: constant.
inline int warmup_steps(const AdapterJob& adapter, int total_steps) {
    if (adapter.lr_scheduler_type == LrSchedule::constant) return 0;
    const double warmup = adapter.warmup_steps;
    return static_cast<int>(warmup < 1.0 ? std::ceil(total_steps * warmup) : warmup);
}

/// Which trials of a sweep train to their end. A trial is evaluated at rungs 0 .. rungs - 1 of its
/// own length, the last one its end, and what it comes to there decides whether it goes on. Values:
/// lower is better; six digits of them count, equal ones go by the order of trials, those that are
/// not finite are last.

/// Optimizer steps at which a trial of `total_steps` is at a rung: eta^(rung + 1 - rungs) of them,
/// rounded up, so that trials of all batch sizes have seen the same data (Li et al., Hyperband);
/// but one more than `warmup` at least, where the learning rate has been what the trial asks for:
/// before that trials are alike.
std::int32_t rung_step(const SweepJob& sweep, std::int32_t total_steps, int rung,
                       std::int32_t warmup = 0);

/// What the search knows of a trial.
struct TrialRecord {
    std::vector<double> values;  ///< at rungs before the last; also at some that it may not reach
    int promoted = 0;            ///< rungs that it was let past
    bool pruned = false;         ///< it was ended by a decision
    bool gone = false;           ///< failed or stopped: last at the rungs it has no value of
};

enum class RungDecision : std::uint8_t {
    wait,     ///< at a rung, not decided; or under way
    promote,  ///< goes on to the next rung
    prune,
};

/// Successive halving over the trials of one dataset: n trials at a rung have max(1, n / eta)
/// places at the next. Trials arrive in any order; one is promoted once it is sure of a place even
/// if all that are still to come beat it, and pruned once as many as there are places have beaten
/// it. So the survivors are those of the synchronous rule (Jamieson and Talwalkar, 2016), whatever
/// the timing, and when all have arrived none waits. Trials that were judged before keep their
/// decision when more have been added since. A decision is that of the first rung where a trial has
/// none; one that trained on meanwhile may be judged again at once.
std::vector<RungDecision> judge_halving(const SweepJob& sweep, std::span<const TrialRecord> trials);

/// The decision, at once, on a trial that has just come to a rung with `value`, where trials before
/// it had `others`. asha: it goes on while it is among the best of eta of all that came so far,
/// itself included, the first one always (Li et al., 2020, the stopping rule of Ray Tune). median:
/// while it is not worse than the median of at least three others (Golovin et al., 2017). Rules
/// without rungs let everyone go on.
RungDecision judge_at_once(const SweepJob& sweep, std::span<const double> others, double value);

/// A value as trials are compared by: six digits of it; what is not finite is infinity.
double compared(double value);

/// How far a trial has come.
enum class TrialStage : std::uint8_t {
    complete,  ///< trained to its end, or to where it gained no more
    partial,   ///< ended before, or still under way
    failed,
};

struct TrialStanding {
    AdapterId trial{};
    TrialStage stage = TrialStage::partial;
    int rungs = 0;       ///< passed or at
    double value = 0.0;  ///< lower is better
};

/// Best first: complete ones by their values; then partial ones, those of later rungs first; failed
/// ones last. Equal ones by the order of trials.
std::vector<TrialStanding> rank_trials(std::vector<TrialStanding> trials);

}  // namespace loratrain
