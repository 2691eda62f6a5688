#pragma once

#include <cstdint>
#include <set>
#include <span>

#include "plan/plan.h"

namespace loratrain {

/// The datasets that adapters train on; not those that have ended.
std::set<DatasetId> used_datasets(const Job& job);

/// What the job's data ask of a deployment.
struct Workload {
    std::int64_t usual_tokens = 0;    ///< of a microbatch: enough for products at full speed
    std::int64_t longest_sample = 0;  ///< tokens (of a pair: of both), evaluation included
    std::int64_t largest_round = 0;   ///< tokens; a larger microbatch cannot be filled
    /// A microbatch of usual size (or the given one) with the mix of samples that all adapters'
    /// steps have together.
    AdapterLoads usual;

    /// What microbatches are to have where memory allows it.
    std::int64_t wanted_tokens() const;
};

/// Every dataset that is used has training samples.
Workload workload_of(const Job& job, const ModelSpec& model, BackendKind backend,
                     std::span<const DatasetInfo> datasets);

}  // namespace loratrain
