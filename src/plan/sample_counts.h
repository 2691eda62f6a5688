#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// A file of so many samples, of which an epoch has `weight` times as many, rounded to whole groups
/// of `group_samples`, one at least.
FileShare file_share(std::int64_t samples, double weight, std::int32_t group_samples);

/// Of files that follow each other in a dataset that which has the sample. `counts`: samples of
/// each.
std::size_t file_of(std::span<const std::int64_t> counts, std::int64_t sample);

/// Samples of each file of an adapter's dataset: to train on, or to evaluate on. Empty of one file.
std::vector<std::int64_t> samples_of_files(const AdapterPlan& plan, bool evaluation);

/// What people count of a dataset with groups of this size (DataKind): "samples", "pairs", or of
/// examples with labels "examples".
const char* unit_word(std::int32_t group_samples);

/// How many of them so many samples are: a pair has two, an example with a label has a KL sample.
std::int64_t units_of(std::int64_t samples, std::int32_t group_samples);

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
