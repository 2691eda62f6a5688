#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>

#include "plan/plan.h"

namespace loratrain {

/// What a job's data ask of a deployment: longest samples, batches, the mix of lengths.

/// The datasets that adapters train on; not those that have ended.
std::set<DatasetId> used_datasets(const Job& job);

/// Most tokens that a global batch of the adapter can have, in whatever order.
std::int64_t largest_batch(const AdapterJob& adapter, const DatasetInfo& info);

/// What the job's data ask of a deployment.
struct Workload {
    std::int64_t usual_tokens = 0;  ///< of a microbatch: enough for products at full speed
    /// Tokens (of a pair: of both; of an adapter that compares whole batches: of one), evaluation
    /// included.
    std::int64_t longest_sample = 0;
    std::int64_t largest_round = 0;  ///< tokens; a larger microbatch cannot be filled
    /// A microbatch of usual size (or the given one) with the mix of samples that all adapters'
    /// steps have together.
    AdapterLoads usual;

    /// What microbatches are to have where memory allows it.
    std::int64_t wanted_tokens() const;
};

/// Every dataset that is used has training samples. `usual_tokens`: none = 2048 on the CPU, 8192 on
/// CUDA.
Workload workload_of(const Job& job, const ModelSpec& model, BackendKind backend,
                     std::span<const DatasetInfo> datasets,
                     std::optional<std::int64_t> usual_tokens = {});

/// The same mix of samples in a microbatch of another size.
MicrobatchLoad scaled_to(const MicrobatchLoad& load, std::int64_t tokens);
AdapterLoads scaled_to(const AdapterLoads& loads, std::int64_t tokens);

/// Of a GPU that has the whole model to itself: 8192, or with hidden sizes below 2048 as many as
/// make 2^24 elements of a layer's input, at most 32768. Kernels of fewer end before they are well
/// under way.
std::int64_t usual_tokens_of_one_gpu(const ModelSpec& model);

}  // namespace loratrain
