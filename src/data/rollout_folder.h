#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace loratrain {

/// The rollouts of one adapter that come into a folder (DatasetJob::grows): step-N.jsonl, .h5 or
/// .hdf5, N perhaps with zeros before it, each renamed into place. Files are taken in the order of
/// their numbers, which may leave some out; a file is one batch, or several of global_batch_size.
/// The file END says that no more come. Everything else in the folder is left alone.
class RolloutFolder {
  public:
    struct Settings {
        DatasetJob dataset;
        std::int64_t vocab_size = 0;
        std::int32_t batch_size = 1;
        std::optional<std::int32_t> max_staleness;  ///< LossJob::max_staleness
    };
    /// Where a run goes on: behind `file_batches` batches of file `file`, the first of them the
    /// batch of step `step` - `file_batches`.
    struct Start {
        std::int32_t step = 0;
        std::int32_t file = 0;
        std::int32_t file_batches = 0;
    };
    struct Batch {
        Arrivals::Batch info;
        std::vector<TokenSample> samples;
    };

    RolloutFolder(Settings settings, const Start& start);

    /// The batch of the next step, if it is there; of a dataset made_in_job in the file of this
    /// number. Which samples are too stale depends on the step: the batches are the same wherever a
    /// run went on. InputError (file:line) for a file that cannot be used, and for one that is not
    /// what a start before has trained on. A folder that cannot be listed is no error: file systems
    /// that are shared come back.
    std::optional<Batch> next();
    /// next() has returned behind a file of which every sample is too stale: the batch may be in
    /// the files behind it.
    bool reads_on() const { return reads_on_; }
    /// Samples that are left out since the last batch, as too stale.
    std::int32_t left_out() const { return stale_; }

    /// No batch follows: END was there, and no file behind the last one.
    bool is_over() const { return over_; }
    /// Why the folder could not be listed when next() looked last; "" = it could.
    const std::string& trouble() const { return trouble_; }
    /// Files that came behind one with a larger number and are never read, reported once each.
    std::vector<std::string> take_late();
    /// The path that a message names for the file that is awaited.
    std::string awaited() const;
    /// The file that was opened last, while it is read.
    const std::optional<Dataset>& file() const { return file_; }

  private:
    bool open_next();
    /// By its number; "" = there is none.
    std::string look();
    bool is_stale(const TokenSample& sample) const;
    std::optional<Batch> cut();
    bool nothing_follows();

    Settings settings_;
    std::int32_t step_;         ///< of the next batch
    std::int32_t skipped_;      ///< batches of the first file that are trained
    std::int32_t next_number_;  ///< of the next file, at least
    bool reads_on_ = false;
    bool over_ = false;
    bool listed_ = false;
    std::string trouble_;
    std::set<std::int32_t> known_;  ///< numbers of files that were there
    std::vector<std::string> late_;

    std::optional<Dataset> file_;
    std::string path_;
    std::int32_t number_ = 0;
    std::int32_t row_ = 0;      ///< next sample of the file
    std::int32_t batches_ = 0;  ///< of the file so far
    std::int32_t stale_ = 0;    ///< samples left out since the last batch
};

/// Whether the folder has files of rollouts; false where it cannot be read.
bool has_rollouts(const std::string& folder);

}  // namespace loratrain
