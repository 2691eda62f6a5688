#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/job.h"
#include "data/kl_groups.h"
#include "io/tokens/token_file.h"
#include "plan/plan.h"

namespace loratrain {

/// Samples to train on: token files seen through max_seq_len, over_length and eval splits.

/// What happened to the samples of a dataset when it was opened.
struct LengthReport {
    std::int64_t samples = 0;  ///< in the files
    std::int64_t truncated = 0;
    std::int64_t dropped = 0;
    std::int64_t without_target = 0;
    std::int64_t weighted = 0;     ///< samples with weights
    std::int64_t all_trained = 0;  ///< samples whose labels are their ids: every token is a target
    std::int64_t held_out = 0;     ///< kept samples that are for evaluation
    std::int64_t ungrouped = 0;    ///< samples behind the last whole group of kl_batch_size
};

/// One or several token files as one list of samples: sample i is the i-th sample that was kept, in
/// the order of the files. Examples with labels (kto) become groups of examples and KL samples
/// (kl_groups.h).
class Dataset {
  public:
    /// Opens and checks files of one kind. InputError with all problems: token ids and labels
    /// outside `vocab_size`; with over_length `error` samples that are too long (their number, the
    /// first and the longest).
    Dataset(const std::vector<std::string>& paths, const DatasetJob& job, std::int64_t vocab_size);
    Dataset(const std::string& path, const DatasetJob& job, std::int64_t vocab_size)
        : Dataset(std::vector{path}, job, vocab_size) {}
    /// A dataset that grows (DatasetJob::grows), of which nothing has come.
    static Dataset growing();
    /// Adds samples to a dataset that grows, numbered from `first` on.
    void add(std::int64_t first, std::vector<TokenSample> samples);
    /// Forgets samples that were added together and are all before this one.
    void forget_before(std::int64_t index);
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    /// Moves `count` groups (>= 1, fewer than there are) into another dataset: the first groups of
    /// a random order that depends on `seed` and the number of groups alone. Both parts keep the
    /// order of the files and have their own checksums.
    Dataset hold_out(std::int64_t count, std::uint64_t seed);

    const std::vector<SampleInfo>& infos() const { return infos_; }
    /// DatasetInfo::weights: for each sample the sum of its targets' weights; empty if no sample
    /// has weights.
    const std::vector<double>& weights() const { return weights_; }
    /// DatasetInfo::group_samples. A group is kept, dropped or held out as a whole.
    std::int64_t group_samples() const {
        if (!file_) return 1;  // it grows
        return kl_groups_.empty() ? file_->group_samples() : 2 * group_units_;
    }
    /// TokenFile::is_rollouts().
    bool is_rollouts() const { return !file_ || file_->is_rollouts(); }
    bool grows() const { return !file_; }
    const LengthReport& report() const { return report_; }
    /// Path and TokenFile::tokenizer() of each file that knows its tokenizer.
    const std::vector<std::pair<std::string, std::string>>& tokenizers() const {
        return tokenizers_;
    }
    /// Place of each sample, counted from 0 through all files; for labelled files of each example.
    const std::vector<std::int64_t>& positions() const { return kept_; }
    /// For each file, the places of its samples in the file.
    std::vector<std::vector<std::int64_t>> positions_of_files() const;
    /// For each file, the number of its samples.
    std::vector<std::int64_t> samples_of_files() const;
    /// Checksum over all ids, labels and numbers of tokens, and over the places of the samples if
    /// the dataset was split; for provenance and for going on.
    const std::string& checksum() const { return checksum_; }
    /// Sample `index`, truncated if over_length says so.
    TokenSample read(std::int64_t index) const;

  private:
    Dataset() = default;
    /// The samples of `whole` whose entry in `marks` is `mark`.
    Dataset(const Dataset& whole, const std::vector<bool>& marks, bool mark);
    /// Makes the groups of examples, and their infos.
    void group_examples(std::vector<Example> examples);

    std::shared_ptr<const TokenFile> file_;
    std::vector<std::int64_t> file_ends_;  ///< where the samples of each file end in file_
    std::vector<std::int64_t> kept_;
    std::vector<SampleInfo> infos_;
    std::vector<double> weights_;
    std::int64_t group_units_ = 1;  ///< entries of kept_ in a group
    KlGroups kl_groups_;            ///< groups of kept_; empty without labels
    std::vector<std::pair<std::string, std::string>> tokenizers_;
    LengthReport report_;
    std::string checksum_;
    std::int64_t max_tokens_ = 0;
    /// Of a dataset that grows, by the number of the first.
    std::map<std::int64_t, std::vector<TokenSample>> arrived_;
};

}  // namespace loratrain
