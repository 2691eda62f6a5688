#pragma once

#include <algorithm>
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
    Slices own;

    bool is_whole() const { return own.count() == extent; }
    std::int64_t whole_count() const { return outer * extent * inner; }
    std::int64_t count() const { return outer * own.count() * inner; }

    /// Elements that lie one behind another in the whole tensor and in the part.
    struct Run {
        std::int64_t in_whole = 0;
        std::int64_t in_part = 0;
        std::int64_t count = 0;
    };
    /// Calls use(run) for the part's elements [begin, end), in order.
    template <class Use>
    void for_each_run(std::int64_t begin, std::int64_t end, const Use& use) const {
        const std::int64_t row = own.count() * inner;
        for (std::int64_t o = row > 0 ? begin / row : end; o * row < end; ++o) {
            own.for_each_piece(
                extent, [&](std::int64_t first, std::int64_t place, std::int64_t count) {
                    const std::int64_t start = o * row + place * inner;
                    const std::int64_t from = std::max(begin, start);
                    const std::int64_t to = std::min(end, start + count * inner);
                    if (from >= to) return;
                    use(Run{(o * extent + first) * inner + from - start, from, to - from});
                });
        }
    }
};

/// The cut that is the whole tensor.
inline TensorCut whole_tensor(std::int64_t elements) {
    return {1, elements, 1, Slice{0, elements}};
}

/// Copies the part out of `whole`, which has whole_count() values.
std::vector<float> cut_out(const TensorCut& cut, std::span<const float> whole);
/// Copies the part's values to their places in `whole`.
void paste(const TensorCut& cut, std::span<const float> part, std::span<float> whole);

}  // namespace loratrain
