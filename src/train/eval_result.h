#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/objective/objective.h"

namespace loratrain {

/// Losses of one of several files.
struct FileLoss {
    double denominator = 0.0;  ///< of all its samples, as EvalResult's
    double loss_sum = 0.0;
    double loss() const;  ///< NaN without a denominator
};

using FileLosses = std::vector<FileLoss>;

/// What an evaluation of an adapter comes to, over all its eval samples; or the details of a step
/// beside its loss and counts, which are missing then (Job::has_step_details).
struct EvalResult {
    AdapterId adapter{};
    std::int32_t step = 0;           ///< with the weights after so many optimizer steps
    double denominator = 0.0;        ///< of the loss sum (sample_counts.h)
    double loss_sum = 0.0;           ///< of its samples
    std::int64_t exact_samples = 0;  ///< every target is the argmax (= greedy decoding is exact)
    std::int64_t samples = 0;
    std::int32_t replica = 0;  ///< whose samples they are, of several
    bool training = false;     ///< of the samples of step `step` (1 = the first)
    RewardSums rewards{};
    FileLosses files{};  ///< where losses are reported by file

    /// Of so many files, unless it has them.
    void set_files(const std::vector<double>& denominators);
    /// Of the same evaluation, another replica's samples.
    void add(const EvalResult& other);
    double loss() const;         ///< 0 without a denominator
    double exact_match() const;  ///< share of the samples; 0 without any
};

}  // namespace loratrain
