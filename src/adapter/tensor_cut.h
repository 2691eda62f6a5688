#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/tensor_shard.h"

namespace loratrain {

/// A part of a whole row-major tensor that is seen as [outer, extent, inner]: the indices `own` of
/// the axis `extent`.
struct TensorCut {
    std::int64_t outer = 1;
    std::int64_t extent = 0;
    std::int64_t inner = 1;
    Slice own;

    bool is_whole() const { return own.count == extent; }
    std::int64_t whole_count() const { return outer * extent * inner; }
    std::int64_t count() const { return outer * own.count * inner; }
    /// Index in the whole tensor of the part's element `element`.
    std::int64_t whole_index(std::int64_t element) const {
        const std::int64_t row = own.count * inner;
        return (element / row * extent + own.first) * inner + element % row;
    }
};

/// The cut that is the whole tensor.
inline TensorCut whole_tensor(std::int64_t elements) {
    return {1, elements, 1, {0, elements}};
}

/// Copies the part out of `whole`, which has whole_count() values.
std::vector<float> cut_out(const TensorCut& cut, std::span<const float> whole);
/// Copies the part's values to their places in `whole`.
void paste(const TensorCut& cut, std::span<const float> part, std::span<float> whole);

}  // namespace loratrain
