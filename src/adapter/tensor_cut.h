#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/tensor_shard.h"

namespace loratrain {

/// A part of a whole row-major tensor seen as [outer, extent, inner]: the blocks `own` of extent.
struct TensorCut {
    std::int64_t outer = 1;
    std::int64_t extent = 0;
    std::int64_t inner = 1;
    Slice own;

    bool is_whole() const { return own.count == extent; }
    std::int64_t whole_count() const { return outer * extent * inner; }
    std::int64_t count() const { return outer * own.count * inner; }
    /// Place of the part's element in the whole tensor.
    std::int64_t whole_index(std::int64_t element) const {
        const std::int64_t row = own.count * inner;
        return (element / row * extent + own.first) * inner + element % row;
    }
};

/// All of a tensor.
inline TensorCut whole_tensor(std::int64_t elements) {
    return {1, elements, 1, {0, elements}};
}

/// The part of a whole tensor's values; of so many values as whole_count().
std::vector<float> cut_out(const TensorCut& cut, std::span<const float> whole);
/// Puts the part's values in their places.
void paste(const TensorCut& cut, std::span<const float> part, std::span<float> whole);

}  // namespace loratrain
