#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/objective/reference_losses.h"
#include "train/checkpoint/checkpoint.h"

namespace loratrain {

/// What the samples of a dataset cost under a reference (ReferenceLosses), kept in the run
/// directory, so that a run that continues does not find it again: a file of one text line per
/// sample, named by a checksum over all that the values depend on: weights, their precision, data,
/// how these are cut and grouped, and what the files of an adapter hold. Root only.
class KeptReferences {
  public:
    KeptReferences(const Job& job, const RunIdentity& identity, const ReferenceId& id);

    /// All, to the bit; none where there is no file or it has not so many values.
    std::optional<std::vector<double>> read(std::size_t samples) const;
    void write(const std::vector<double>& losses) const;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

}  // namespace loratrain
