#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// Sizes of an adapter's state: parameters, gradients and moments.

/// The kind of moments that an adapter's tensors on `linear` have: AdapterJob::optim, but fp32 on
/// an embedding. A step gives most numbers of an embedding no gradient; a number whose second
/// moment has become code 0 would be divided by epsilon alone. transformers, too, keeps embeddings
/// out of 8 bits.
Optim optim_on(const AdapterJob& adapter, Linear linear);

/// Whether the moments of a tensor are 8-bit codes. `parameters`: the number that one lane has.
/// True from 4096 parameters on, as with bitsandbytes' min_8bit_size.
bool has_coded_moments(Optim optim, std::int64_t parameters);

/// Whether some adapter has Optim::adamw_8bit. All replicas of such a job have equal lanes, because
/// codes are made of a lane's part of a tensor.
bool has_coded_states(const Job& job);

/// State of a resident adapter: numbers of elements, and bytes. In bytes, every array is rounded up
/// to a multiple of the alignment.
struct StateSizes {
    std::int64_t trained = 0;
    std::int64_t frozen = 0;
    std::int64_t norms = 0;   ///< AdapterForm::keeps_norms
    std::int64_t coded = 0;   ///< elements of `trained` whose moments are codes
    std::int64_t blocks = 0;  ///< blocks of the coded elements: dynamic_block elements each, the
                              ///< last block of a tensor may have fewer

    void add(std::int64_t parameters, bool is_trained, Optim optim);
    /// The sizes of `layers` such parts.
    StateSizes times(std::int64_t layers) const;
    StateSizes& operator+=(const StateSizes& other);
    /// The larger of each number of `a` and `b`.
    static StateSizes most(const StateSizes& a, const StateSizes& b);

    std::uint64_t parameter_bytes() const;
    std::uint64_t gradient_bytes() const;
    /// Bytes of one of the two moments: fp32 numbers, scales of blocks, and codes.
    std::uint64_t moment_bytes() const;
    std::uint64_t norm_bytes() const;
    std::uint64_t bytes() const;
};

/// Bytes of host memory per rank that a checkpoint takes while training goes on. Each rank copies
/// the state of `adapters` (parameters and both moments, in fp32) and keeps the copy until rank 0
/// has written it. Rank 0 holds the copies of all ranks of its replica.
std::vector<std::uint64_t> checkpoint_copies(const Job& job, const Plan& plan,
                                             std::span<const AdapterId> adapters);

/// Whether the host has room for checkpoint_copies(). On CPU ranks the copies must fit into
/// bytes_per_rank beside everything that the plan counts. On GPUs all copies together must fit into
/// `free_host_bytes`, the free memory of the host, as if all ranks shared that host.
bool checkpoint_copies_fit(const Job& job, const Plan& plan, std::span<const AdapterId> adapters,
                           std::uint64_t free_host_bytes);

}  // namespace loratrain
