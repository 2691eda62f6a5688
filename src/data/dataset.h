#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/job.h"
#include "data/kl_groups.h"
#include "io/tokens/token_file.h"
#include "plan/plan.h"

namespace loratrain {

/// What the over-length policy did to a file.
struct LengthReport {
    std::int64_t samples = 0;  ///< in the file
    std::int64_t truncated = 0;
    std::int64_t dropped = 0;
    std::int64_t without_target = 0;
    std::int64_t weighted = 0;     ///< that have weights
    std::int64_t all_trained = 0;  ///< whose labels are their ids: no token is left out
    std::int64_t held_out = 0;     ///< of those that were kept, for evaluation
    std::int64_t ungrouped = 0;    ///< left out behind the last whole group of kl_batch_size
};

/// One or several token files seen through max_seq_len and over_length: sample i here is the i-th
/// that was kept, those of a file behind those of the files before it.
/// Of examples with labels the samples are those of their groups (kl_groups.h), each example and a
/// KL sample of it.
class Dataset {
  public:
    /// Opens and checks files, which are of one kind: token ids and labels within `vocab_size`,
    /// lengths by policy (over_length error: their number, the first and the longest). Throws
    /// InputError with all problems.
    Dataset(const std::vector<std::string>& paths, const DatasetJob& job, std::int64_t vocab_size);
    Dataset(const std::string& path, const DatasetJob& job, std::int64_t vocab_size)
        : Dataset(std::vector{path}, job, vocab_size) {}
    ~Dataset();
    Dataset(Dataset&&) noexcept;
    Dataset& operator=(Dataset&&) noexcept;

    /// Takes `count` groups out of this dataset, at least 1 and fewer than it has: the first of a
    /// random order that depends on `seed` and its size alone. Both parts stay in the order of the
    /// file and have checksums of their own.
    Dataset hold_out(std::int64_t count, std::uint64_t seed);

    const std::vector<SampleInfo>& infos() const { return infos_; }
    /// DatasetInfo's: of each sample the sum of its targets' weights; empty: no sample has weights.
    const std::vector<double>& weights() const { return weights_; }
    /// As DatasetInfo's: a group is kept, dropped or held out as a whole.
    std::int64_t group_samples() const {
        return kl_groups_.empty() ? file_->group_samples() : 2 * group_units_;
    }
    const LengthReport& report() const { return report_; }
    /// Of each file that knows it: path and TokenFile::tokenizer().
    const std::vector<std::pair<std::string, std::string>>& tokenizers() const {
        return tokenizers_;
    }
    /// Where each sample stands in the files one behind the other, counted from 0; of labelled ones
    /// the examples.
    const std::vector<std::int64_t>& positions() const { return kept_; }
    /// Per file where its samples stand in it.
    std::vector<std::vector<std::int64_t>> positions_of_files() const;
    /// Per file how many samples there are.
    std::vector<std::int64_t> samples_of_files() const;
    /// Checksum over all ids, labels and weights (of a part: and which samples it has), for
    /// provenance and resume.
    const std::string& checksum() const { return checksum_; }
    /// Sample `index`, truncated where the policy says so.
    TokenSample read(std::int64_t index) const;

  private:
    /// The samples of `whole` whose mark is `mark`.
    Dataset(const Dataset& whole, const std::vector<bool>& marks, bool mark);
    /// The infos of whole groups of examples.
    void group_examples(std::vector<Example> examples);

    std::shared_ptr<const TokenFile> file_;
    std::vector<std::int64_t> file_ends_;  ///< in file_, of each that it is made of
    std::vector<std::int64_t> kept_;
    std::vector<SampleInfo> infos_;
    std::vector<double> weights_;
    std::int64_t group_units_ = 1;  ///< of kept_ that make a group
    KlGroups kl_groups_;            ///< of kept_; empty without labels
    std::vector<std::pair<std::string, std::string>> tokenizers_;
    LengthReport report_;
    std::string checksum_;
    std::int64_t max_tokens_ = 0;
};

}  // namespace loratrain
