#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "config/job.h"
#include "config/model_spec.h"
#include "plan/plan.h"

namespace loratrain {

/// What a trial of a hyper-parameter sweep asks of whoever trains it; a trial is an adapter like
/// any other. Rows are means over its dataset.
struct TrialLoad {
    std::int32_t steps = 0;               ///< optimizer steps
    double samples = 0.0;                 ///< of a step
    double tokens = 0.0;                  ///< of a step
    double squares = 0.0;                 ///< of a step: sum over samples of tokens²
    double targets = 0.0;                 ///< of a step
    std::int64_t parameters = 0;          ///< trained ones, of the whole model
    std::int32_t r = 0;                   ///< LoRA rank
    std::int64_t evaluation_tokens = 0;   ///< of all eval samples; 0 = it is not evaluated
    double evaluation_squares = 0.0;      ///< of all eval samples
    std::int64_t evaluation_targets = 0;  ///< of all eval samples
    friend bool operator==(const TrialLoad&, const TrialLoad&) = default;
    /// By steps, then tokens, then the others.
    friend bool operator<(const TrialLoad& a, const TrialLoad& b);
};

/// Trials of equal load form a class; how long a sweep takes depends on the classes alone.
struct TrialClasses {
    std::vector<TrialLoad> loads;  ///< by falling steps, among equals by falling tokens
    std::vector<std::vector<AdapterId>> members;  ///< per class, ascending; none is empty

    std::size_t size() const { return loads.size(); }
    std::vector<std::int32_t> counts() const;  ///< members of each
    std::int64_t trials() const;
};

/// All adapters of the job as trials. `datasets`: by DatasetId. InputError where an adapter's
/// epochs or steps lead to none (AdapterChecks::plan), or its dataset has no training samples.
TrialClasses trial_classes(const Job& job, const ModelSpec& model,
                           std::span<const DatasetInfo> datasets);

}  // namespace loratrain
