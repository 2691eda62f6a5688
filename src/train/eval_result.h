#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/objective/objective.h"

namespace loratrain {

/// The result of an evaluation.

/// Loss of one file of a dataset that has several.
struct FileLoss {
    double denominator = 0.0;  ///< over all its samples, as EvalResult::denominator
    double loss_sum = 0.0;
    double loss() const;  ///< NaN without a denominator
};

using FileLosses = std::vector<FileLoss>;

/// Result of an evaluation of an adapter over all its eval samples. With `training`: details of a
/// training step (Job::has_step_details) without its loss and counts.
struct EvalResult {
    AdapterId adapter{};
    std::int32_t step = 0;           ///< optimizer steps behind the evaluated weights
    double denominator = 0.0;        ///< of the loss sum (sample_counts.h)
    double loss_sum = 0.0;           ///< over the samples
    std::int64_t exact_samples = 0;  ///< samples where every target is the argmax
    std::int64_t samples = 0;
    std::int32_t replica = 0;  ///< the replica that had these samples
    bool training = false;     ///< over the training samples of step `step` (1 = the first)
    RewardSums rewards{};
    FileLosses files{};  ///< by file, where losses are reported by file
    /// Makes a FileLoss for each file, unless there are some.
    void set_files(const std::vector<double>& denominators);
    /// Adds the result of another replica's samples of the same evaluation.
    void add(const EvalResult& other);
    double loss() const;         ///< 0 without a denominator
    double exact_match() const;  ///< share of the samples; 0 without any
};

}  // namespace loratrain
