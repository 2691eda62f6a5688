#pragma once

#include <cstdint>

#include "config/job.h"

namespace loratrain {

/// What keeps moments of the adapter's tensors on a linear: AdapterJob::optim, but on an embedding
/// fp32. There a step gives most numbers no gradient, and one whose second moment has become code 0
/// would be divided by epsilon alone. transformers too keeps embeddings out of 8 bits.
Optim optim_on(const AdapterJob& adapter, Linear linear);

/// Whether the moments of a tensor with so many parameters, those that a lane has, are 8-bit codes:
/// from 4096 on, as bitsandbytes' min_8bit_size.
bool has_coded_moments(Optim optim, std::int64_t parameters);

/// Some adapter has Optim::adamw_8bit. Its replicas have equal lanes: codes are made of what each
/// lane has of a tensor.
bool has_coded_states(const Job& job);

/// What a resident adapter keeps, in numbers of elements; and in bytes, of which every array takes
/// a whole multiple of the alignment.
struct StateSizes {
    std::int64_t trained = 0;
    std::int64_t frozen = 0;
    std::int64_t norms = 0;  ///< AdapterForm::keeps_norms
    std::int64_t coded = 0;  ///< of the trained, those with coded moments
    std::int64_t blocks =
        0;  ///< of these codes: dynamic_block of a tensor, its last one may be less

    void add(std::int64_t parameters, bool is_trained, Optim optim);
    /// Of `layers` such parts.
    StateSizes times(std::int64_t layers) const;
    StateSizes& operator+=(const StateSizes& other);
    /// The larger of either, number by number.
    static StateSizes most(const StateSizes& a, const StateSizes& b);

    std::uint64_t parameter_bytes() const;
    std::uint64_t gradient_bytes() const;
    /// Of each of the two moments: fp32 numbers, scales of blocks, codes.
    std::uint64_t moment_bytes() const;
    std::uint64_t norm_bytes() const;
    std::uint64_t bytes() const;
};

}  // namespace loratrain
