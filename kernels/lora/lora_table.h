#pragma once

#include "kernels/matrix.h"

namespace loratrain::kernels {

constexpr int max_lora_targets = 4;

/// One adapter's factors on one linear: A [rank, K], B [N, rank] in fp32; rank 0: not targeted.
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
    std::uint16_t dropout;  ///< elements whose 15 random bits are below it are dropped
    std::uint16_t begins;   ///< gradients are written, not added to
};

/// Rows [begin, end) belong to slot `slot`; ascending, disjoint.
struct LoraSegmentEntry {
    std::int32_t begin;
    std::int32_t end;
    std::int32_t slot;
    std::uint32_t step;
};

/// Rows [begin, end) of one segment, or (segment -1, slot -1) of none. The tiles of a launch are
/// ascending and cover every row.
struct LoraTile {
    std::int32_t begin;
    std::int32_t end;
    std::int32_t segment;
    std::int32_t slot;           ///< of the segment
    std::int32_t tiles_of_slot;  ///< of all its segments
};

/// What a microbatch's LoRA launch works on. Pointers are device memory.
struct LoraTables {
    const LoraSlotEntry* slots = nullptr;  ///< [target_count, slot_count]
    const LoraSegmentEntry* segments = nullptr;
    const LoraTile* tiles = nullptr;
    const std::int32_t* positions = nullptr;   ///< [T], of each row in its sample
    const std::int32_t* sample_ids = nullptr;  ///< [T]
    std::int32_t slot_count = 0;
    std::int32_t target_count = 0;
    std::int32_t segment_count = 0;
    std::int32_t tile_count = 0;
    std::int32_t tile_rows = 0;           ///< of a tile, at most
    std::int32_t most_tiles_of_slot = 0;  ///< LoraTile::tiles_of_slot, at most
    std::int32_t largest_rank = 0;
    std::int32_t largest_rank_sum = 0;  ///< over the targets of one slot, ranks rounded up to 16
    /// Which 8 columns of the linear's input X starts with, for dropout: a lane has some of them.
    std::int32_t first_dropout_block = 0;
    bool dropout = false;  ///< some slot drops
};

}  // namespace loratrain::kernels
