#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "config/job.h"

namespace loratrain {

/// Warm-up steps, as transformers 5 reads warmup_steps: below 1 a fraction of `total_steps`,
/// rounded up. 0 with lr_scheduler_type: constant.
inline int warmup_steps(const AdapterJob& adapter, int total_steps) {
    if (adapter.lr_scheduler_type == LrSchedule::constant) return 0;
    const double warmup = adapter.warmup_steps;
    return static_cast<int>(warmup < 1.0 ? std::ceil(total_steps * warmup) : warmup);
}

/// Which trials of a sweep train to their end. A trial is evaluated at rungs 0 .. rungs - 1 of its
/// own length, the last one its end, and what it comes to there decides whether it goes on. Values:
/// lower is better; six digits of them count, equal ones go by the order of trials, those that are
/// not finite are last.

/// Step at which a trial of `total_steps` is at a rung: ceil(total_steps * eta^(rung + 1 - rungs)),
/// so that trials of all batch sizes have seen the same data (Li et al., Hyperband). At least
/// warmup + 1: before that the learning rate has not been the trial's own.
std::int32_t rung_step(const SweepJob& sweep, std::int32_t total_steps, int rung,
                       std::int32_t warmup = 0);

/// What a decision depends on.
struct TrialRecord {
    std::vector<double> values;  ///< at rungs before the last, also at rungs not passed yet
    int promoted = 0;            ///< rungs passed
    bool pruned = false;         ///< ended by a decision
    bool gone = false;           ///< failed or stopped: last at rungs where it has no value
};

enum class RungDecision : std::uint8_t {
    wait,     ///< no decision yet, or not at a rung
    promote,  ///< goes on to the next rung
    prune,
};

/// Successive halving over the trials of one dataset: n trials at a rung have max(1, n / eta)
/// places at the next. Trials arrive in any order. A trial is promoted once its place is certain
/// even if all trials to come beat it, and pruned once as many trials as there are places beat it.
/// So the survivors are those of the synchronous rule (Jamieson and Talwalkar, 2016) whatever the
/// timing, and no trial waits once all have arrived. Decisions stay when trials are added later. A
/// decision is about the first rung where the trial has none; a trial that trained on may be judged
/// again at once. Applied by TrialSearch (train/search/trial_search.h).
std::vector<RungDecision> judge_halving(const SweepJob& sweep, std::span<const TrialRecord> trials);

/// The decision on a trial that comes to a rung with `value`; earlier trials had `others` there.
/// - asha: promoted if it is among the best 1/eta of all trials so far, itself included; the first
///   one always (Li et al., 2020, the stopping rule of Ray Tune);
/// - median: promoted unless it is worse than the median of at least three others (Golovin et al.,
///   2017);
/// - rules without rungs: promoted.
RungDecision judge_at_once(const SweepJob& sweep, std::span<const double> others, double value);

/// A value as trials are compared: six digits; infinity if it is not finite.
double compared(double value);

/// How far a trial has come.
enum class TrialStage : std::uint8_t {
    complete,  ///< trained to its end, or stopped early
    partial,   ///< ended before, or still training
    failed,
};

struct TrialStanding {
    AdapterId trial{};
    TrialStage stage = TrialStage::partial;
    int rungs = 0;       ///< passed, with the one that it is at
    double value = 0.0;  ///< lower is better
};

/// Sorts trials, best first: complete trials by value; then partial ones, later rungs first; then
/// failed ones. Equal trials keep their order.
std::vector<TrialStanding> rank_trials(std::vector<TrialStanding> trials);

}  // namespace loratrain
