#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "model/objective/reference_losses.h"
#include "train/checkpoint/checkpoint_reader.h"
#include "train/worker.h"

namespace loratrain {

/// Reference losses of a run: what the samples of a dataset cost under the base model or under
/// `ref_adapter`, with which DPO, KTO and others compare (model/objective/reference_losses.h). They
/// are computed once, before the first adapter that needs them trains, by Executor::refer() on all
/// ranks, from the plan alone, so that they repeat to the bit. A joint run keeps them
/// (KeptReferences); workers do not, since their values depend on a worker's ranks. Rank 0 of a
/// worker only.
class References {
  public:
    explicit References(Worker& worker) : worker_(worker) {}

    /// With an empty pipeline: reads or computes the losses that running adapters need.
    void refer_newcomers();
    /// The adapter needs no reference losses, or they are known.
    bool knows(AdapterId adapter) const;

  private:
    void refer(AdapterId adapter);

    Worker& worker_;
    std::set<ReferenceId> known_;
};

/// Reference losses in the run directory, <run.dir>/references/<checksum>.txt, for a run that
/// continues: one text line per sample, with its values. The checksum covers all that the values
/// depend on: base weights and their precision, data, how samples are cut and grouped, and the
/// files of `ref_adapter`. Rank 0 only.
class KeptReferences {
  public:
    KeptReferences(const Job& job, const RunIdentity& identity, const ReferenceId& id);

    /// All, to the bit; none where there is no file or it has not so many values.
    std::optional<ReferenceValues> read(std::size_t samples) const;
    void write(const ReferenceValues& losses) const;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace loratrain
