#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace loratrain {

/// The z of samples (ObjectiveSamples) under the base model alone, which all adapters share: found
/// once per dataset, for all of its samples, and kept. Those to train on come first, then those to
/// evaluate on.
class ReferenceLosses {
  public:
    bool has(DatasetId dataset) const { return of_.contains(dataset); }
    void set(DatasetId dataset, std::vector<double> losses) { of_[dataset] = std::move(losses); }
    const std::vector<double>& of(DatasetId dataset) const { return of_.at(dataset); }

  private:
    std::map<DatasetId, std::vector<double>> of_;
};

}  // namespace loratrain
