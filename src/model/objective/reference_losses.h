#pragma once

#include <compare>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// A reference that the samples of a dataset are compared with: the base model alone, or with the
/// adapter in a PEFT directory (AdapterJob::ref_adapter).
struct ReferenceId {
    DatasetId dataset{};
    std::string ref_adapter;
    friend auto operator<=>(const ReferenceId&, const ReferenceId&) = default;
};
inline ReferenceId reference_of(const AdapterJob& adapter) {
    return {adapter.dataset, adapter.ref_adapter};
}

/// z of all samples of a dataset (ObjectiveSamples) under a reference. They are computed once and
/// shared by all adapters with that reference. The samples to train on come first, then those to
/// evaluate on.
class ReferenceLosses {
  public:
    void set(const ReferenceId& id, std::vector<double> losses) { of_[id] = std::move(losses); }
    const std::vector<double>& of(const ReferenceId& id) const { return of_.at(id); }

  private:
    std::map<ReferenceId, std::vector<double>> of_;
};

}  // namespace loratrain
