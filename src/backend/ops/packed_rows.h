#pragma once

#include <cstdint>

namespace loratrain {

/// Samples packed one after another into the T rows of a microbatch.
struct PackedRows {
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
    const std::int32_t* offsets = nullptr;       ///< [samples + 1], first row of each sample
    const std::int32_t* host_offsets = nullptr;  ///< the same [host]
    const std::int32_t* positions = nullptr;     ///< [T], position of each row in its sample
    const std::int32_t* sample_ids = nullptr;    ///< [T], index of the sample in its dataset
};

}  // namespace loratrain
