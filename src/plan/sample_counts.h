#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Counts of samples: by file, in people's units, and as denominators of losses.

/// Share of a file with `samples` samples in an epoch: `weight` * samples, rounded to whole groups
/// of `group_samples`, at least one group.
FileShare file_share(std::int64_t samples, double weight, std::int32_t group_samples);

/// The file that has the sample, of files that follow each other in a dataset. `counts`: samples
/// per file.
std::size_t file_of(std::span<const std::int64_t> counts, std::int64_t sample);

/// Samples per file of an adapter's dataset, for training or for evaluation. Empty for one file.
std::vector<std::int64_t> samples_of_files(const AdapterPlan& plan, bool evaluation);

/// Word for what people count in a dataset of this group size (DataKind): "samples", "pairs",
/// "examples" (with labels).
const char* unit_word(std::int32_t group_samples);

/// Number of such units in `samples` samples: a pair has two, an example with a label has a KL
/// sample beside it.
std::int64_t units_of(std::int64_t samples, std::int32_t group_samples);

/// True if a sample, by its place in the dataset, is the chosen one of a pair.
inline bool is_chosen(const LossJob& loss, std::int64_t sample) {
    return loss.is_of_pairs() && sample % 2 == 0;
}

/// Denominator of a batch's summed losses (BatchPlan::denominator), from its counts. Cross-entropy:
/// the weights of target tokens; losses of pairs: pairs; losses of examples with KL samples
/// (SampleInfo): examples; losses of rollouts: as LossAggregation says.
inline double loss_denominator(const LossJob& loss, const BatchPlan& batch) {
    const auto samples = static_cast<double>(batch.samples);
    if (loss.has_rewards()) return static_cast<double>(batch.samples / 2);
    if (!loss.is_of_rollouts()) return batch.target_weight;
    switch (loss.aggregation) {
        case LossAggregation::sequence:
            return samples;
        case LossAggregation::constant:
            return samples * static_cast<double>(loss.max_completion_length.value_or(1));
        case LossAggregation::token:
            break;
    }
    return batch.target_weight;
}

/// A sample's part of BatchPlan::target_weight. `weights`: DatasetInfo::train_weights or
/// eval_weights.
inline double target_weight(const std::vector<double>& weights, std::int64_t sample,
                            std::int32_t targets) {
    return weights.empty() ? targets : weights[static_cast<std::size_t>(sample)];
}

/// Computes BatchPlan::file_denominators sample by sample.
class FileDenominators {
  public:
    /// `files`: samples_of_files().
    explicit FileDenominators(std::vector<std::int64_t> files)
        : files_(std::move(files)), of_files_(files_.size()) {}

    /// `weight`: target_weight() of the sample.
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
