#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "plan/file_share.h"
#include "plan/plan.h"

namespace loratrain {

/// Whether a sample, by its place in the dataset, is the chosen one of a pair.
inline bool is_chosen(const LossJob& loss, std::int64_t sample) {
    return loss.is_of_pairs() && sample % 2 == 0;
}

/// What the summed losses of a batch are divided by (BatchPlan::denominator), from its counts.
/// Cross-entropy is a mean over target tokens by their weights, a loss of pairs over pairs, one of
/// examples with KL samples (SampleInfo) over examples.
inline double loss_denominator(const LossJob& loss, const BatchPlan& batch) {
    const std::int32_t of_two = batch.samples / 2;
    return loss.has_rewards() ? static_cast<double>(of_two) : batch.target_weight;
}

/// What a sample of `info` adds to BatchPlan::target_weight; `weights` are those of the samples
/// that it is of (DatasetInfo).
inline double target_weight(const std::vector<double>& weights, std::int64_t sample,
                            std::int32_t targets) {
    return weights.empty() ? targets : weights[static_cast<std::size_t>(sample)];
}

/// Counts what the samples of a batch add to BatchPlan::file_denominators.
class FileDenominators {
  public:
    /// As samples_of_files().
    explicit FileDenominators(std::vector<std::int64_t> files)
        : files_(std::move(files)), of_files_(files_.size()) {}

    /// `sample` of `weight`, as target_weight() has it.
    void add(std::int64_t sample, double weight) {
        if (files_.empty()) return;
        BatchPlan& counts = of_files_[file_of(files_, sample)];
        ++counts.samples;
        counts.target_weight += weight;
    }
    std::vector<double> of(const LossJob& loss) const {
        std::vector<double> denominators;
        for (const BatchPlan& counts : of_files_) {
            denominators.push_back(loss_denominator(loss, counts));
        }
        return denominators;
    }

  private:
    std::vector<std::int64_t> files_;
    std::vector<BatchPlan> of_files_;
};

}  // namespace loratrain
