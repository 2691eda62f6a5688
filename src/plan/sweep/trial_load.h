#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config/job.h"
#include "config/model_spec.h"
#include "plan/plan.h"

namespace loratrain {

/// Load of a trial of a hyper-parameter sweep. A trial is an adapter like any other. Values per
/// step are means over its dataset.
struct TrialLoad {
    std::int32_t steps = 0;       ///< optimizer steps
    double samples = 0.0;         ///< of a step
    double tokens = 0.0;          ///< of a step
    double squares = 0.0;         ///< of a step: sum over samples of AttentionSpan::squares()
    double targets = 0.0;         ///< of a step
    std::int64_t parameters = 0;  ///< trained ones, of the whole model
    std::int32_t r = 0;           ///< LoRA rank
    std::int64_t evaluation_tokens = 0;   ///< of all eval samples; 0 = it is not evaluated
    double evaluation_squares = 0.0;      ///< of all eval samples
    std::int64_t evaluation_targets = 0;  ///< of all eval samples
    std::vector<std::int32_t> rungs;      ///< steps, before its last, after which it is evaluated
    double rung_share = 1.0;              ///< share of the eval samples at rungs
    friend bool operator==(const TrialLoad&, const TrialLoad&) = default;
    /// By steps, then tokens, then the others.
    friend bool operator<(const TrialLoad& a, const TrialLoad& b);
};

/// Trials of a sweep by class: trials of equal load. The time of a sweep depends on classes only.
struct TrialClasses {
    std::vector<TrialLoad> loads;                 ///< by falling steps, then falling tokens
    std::vector<std::vector<AdapterId>> members;  ///< per class, ascending; at least one

    std::size_t size() const { return loads.size(); }
    std::vector<std::int32_t> counts() const;  ///< members of each
    std::int64_t trials() const;
};

/// Rule of successive halving (sweep.scheduler: halving).
struct HalvingRule {
    int rungs = 3;  ///< the last one is a trial's end
    int reduction_factor = 3;
    std::int64_t rung_eval_samples = 0;  ///< first eval samples at rungs before the last; 0 = all
};

/// The trials with the steps that halving is expected to leave them. Of n trials of a dataset at a
/// rung max(1, n / reduction_factor) go on, drawn at random since no value is known; the others end
/// there. Rung k lies after ceil(steps x reduction_factor^(k + 1 - rungs)) steps. Waiting for
/// decisions costs nothing: other trials train meanwhile.
TrialClasses expected_halving(const Job& job, std::span<const DatasetInfo> datasets,
                              const TrialClasses& trials, const HalvingRule& rule);

/// The trials that have steps left, with their remaining steps. `steps_left`: per AdapterId.
TrialClasses remaining_trials(const TrialClasses& trials, std::span<const std::int32_t> steps_left);

/// All adapters of the job as trials. `datasets`: by DatasetId. InputError if an adapter has no
/// steps (AdapterChecks::plan) or no training samples.
TrialClasses trial_classes(const Job& job, const ModelSpec& model,
                           std::span<const DatasetInfo> datasets);

/// The same after expected_halving() by the job's sweep.
TrialClasses expected_trials(const Job& job, const ModelSpec& model,
                             std::span<const DatasetInfo> datasets);

/// The class of each of counts[c] trials of class c, class by class.
std::vector<std::int32_t> queue_of(std::span<const std::int32_t> counts);

}  // namespace loratrain
