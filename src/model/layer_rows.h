#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "base/ids.h"

namespace loratrain {

/// The consecutive rows of a microbatch that a layer computes: all rows, or in a layer shared with
/// a neighbour stage the rows of the adapters that this stage computes in the layer. Row numbers in
/// `segments` and `packed` count from first_row.
struct LayerRows {
    std::int64_t first_row = 0;  ///< row of the microbatch
    std::int64_t tokens = 0;
    std::int64_t first_sample = 0;  ///< number of its first sample in the microbatch
    std::vector<LoraSegment> segments;
    std::vector<std::int32_t> offsets;  ///< packed.host_offsets
    std::vector<std::int32_t> lengths;  ///< of samples, also of their earlier rows in a TextCache
    PackedRows packed;

    /// Adapter of each segment. The slot number of a segment is its position.
    std::vector<AdapterId> adapters;
    /// First LoRA column of each segment's slot; the other fields as LoraColumns has them.
    std::vector<std::int32_t> columns;
    std::int64_t width = 0;
    bool augmented = false;
    bool has_dropout = false;
    bool evaluation = false;
    bool base_alone = false;  ///< computes the base model without LoRA

    /// An adapter whose factors are in the pads of weight matrices, and their first column.
    struct PadPlace {
        AdapterId adapter{};
        std::int32_t column = 0;
    };
    std::vector<PadPlace> pads;

    LoraRows lora_rows() const { return {segments, packed}; }
};

}  // namespace loratrain
