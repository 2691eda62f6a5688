#pragma once

#include "kernels/matrix.h"

namespace loratrain::kernels {

/// Tables of a microbatch's LoRA, as kernels read them.

constexpr int max_lora_targets = 4;

/// One adapter's factors on one linear: A [rank, K], B [N, rank] in fp32. rank 0 = not targeted.
struct LoraSlotEntry {
    const float* a;
    const float* b;
    float* grad_a;
    float* grad_b;
    std::uint64_t dropout_key;
    std::int64_t copy_row;  ///< first row of A's bf16 copy (LoraShrinkParams::copies)
    std::int32_t rank;
    float scale;
    std::int32_t column;    ///< first column in S and dS
    std::uint16_t dropout;  ///< threshold: elements whose 15 random bits are below it are dropped
    std::uint16_t begins;   ///< not 0: gradients are overwritten, else accumulated
};

/// Rows [begin, end), which belong to slot `slot`. Segments are ascending and disjoint.
struct LoraSegmentEntry {
    std::int32_t begin;
    std::int32_t end;
    std::int32_t slot;
    std::uint32_t step;
};

/// Rows [begin, end) of one segment, or of none (segment = slot = -1). The tiles of a launch are
/// ascending and cover every row.
struct LoraTile {
    std::int32_t begin;
    std::int32_t end;
    std::int32_t segment;
    std::int32_t slot;           ///< the segment's slot
    std::int32_t tiles_of_slot;  ///< number of tiles of all the slot's segments
};

/// All tables of a launch. Pointers are device memory.
struct LoraTables {
    const LoraSlotEntry* slots = nullptr;  ///< [target_count, slot_count]
    const LoraSegmentEntry* segments = nullptr;
    const LoraTile* tiles = nullptr;
    const std::int32_t* positions = nullptr;   ///< [T], position of each row in its sample
    const std::int32_t* sample_ids = nullptr;  ///< [T]
    std::int32_t slot_count = 0;
    std::int32_t target_count = 0;
    std::int32_t segment_count = 0;
    std::int32_t tile_count = 0;
    std::int32_t tile_rows = 0;           ///< the most rows of a tile
    std::int32_t most_tiles_of_slot = 0;  ///< the largest LoraTile::tiles_of_slot
    std::int32_t largest_rank = 0;
    /// Largest sum over the targets of one slot's ranks, each rounded up to 16.
    std::int32_t largest_rank_sum = 0;
    /// For dropout, the number of the 8 columns of the linear's whole input where X begins (a lane
    /// has a part of them).
    std::int32_t first_dropout_block = 0;
    bool dropout = false;  ///< true if any slot has dropout
};

}  // namespace loratrain::kernels
