#pragma once

#include <cstdint>

/// What the kernels take beside tensors, and the limits that follow from how they are cut: numbers
/// alone, without CUDA, for the launchers here and for those who count memory before there is a GPU
/// (src/plan/memory). LoRA's are in lora/lora_sizes.h.
namespace loratrain::kernels {

/// Bytes of shared memory that a GPU offers a block of threads. The largest tiles are made for the
/// most (sm_90); every kernel has tiles for the least (sm_86, sm_89; sm_80 has 163 KiB). Which ones
/// are taken follows a limit that the caller gives, and changes no bit of a result where nothing
/// else is said.
constexpr int most_shared_bytes = 227 * 1024;
constexpr int least_shared_bytes = 99 * 1024;

/// Pieces of at most `size`.
constexpr int pieces(std::int64_t count, std::int64_t size) {
    return static_cast<int>((count + size - 1) / size);
}

/// Workspace of cross_entropy, of a row: its loss, and whether it is wrong.
constexpr std::int64_t cross_entropy_row_bytes = sizeof(double) + sizeof(std::int32_t);

/// Workspace of sum_squares: sums of so many parts.
constexpr std::int64_t sum_squares_parts = 1024;
constexpr std::int64_t sum_squares_bytes = sum_squares_parts * sizeof(double);

constexpr std::int64_t adamw_workspace_bytes = 64;

/// Parts that a sum of add_parts can have, and its workspace: the squares that its blocks sum.
constexpr std::int32_t most_parts = 320;
constexpr std::int64_t add_parts_workspace = 1024;
constexpr std::int64_t add_parts_bytes = add_parts_workspace * sizeof(double);

/// Experts that a router may have, and that a row may go to.
constexpr std::int64_t most_experts = 1024;
constexpr std::int64_t most_experts_per_token = 32;

/// Products of all experts (grouped/grouped.h): rows of one expert in a tile, the bytes of one in a
/// table, and how many `copies` rows in all make, however many of them each expert has.
constexpr int expert_tile_rows = 128;
constexpr std::int64_t expert_tile_bytes = 16;
constexpr std::int64_t most_expert_tiles(std::int64_t copies, std::int64_t experts) {
    return copies / expert_tile_rows + (experts < copies ? experts : copies);
}
/// Workspace of expert_down_backward, of a row: a part of the gradient of its weight for each of so
/// many columns, fp32.
constexpr int expert_part_columns = 256;
constexpr std::int64_t expert_parts_bytes(std::int64_t size) {
    return std::int64_t{pieces(size, expert_part_columns)} * 4;
}

/// Rows of attention's tiles: on tensor cores forward and backward, in plain arithmetic, and of the
/// gradients' tiles of kernels/hopper.
constexpr std::int32_t attention_forward_rows = 128;
constexpr std::int32_t attention_backward_rows = 64;
constexpr std::int32_t attention_plain_rows = 32;
constexpr std::int32_t attention_hopper_rows = 128;
constexpr std::int64_t attention_least_rows = attention_plain_rows;

/// Of a tile in a table of tiles, and of a row and head in attention_backward's statistics.
constexpr std::int64_t attention_tile_bytes = 16;
constexpr std::int64_t attention_row_bytes = 8;

/// Heads whose gradients of scores are kept for dQ, of those that warpgroups take. Of narrower ones
/// to compute them twice takes less time than to write and read them, measured on an H200.
constexpr bool keeps_attention_scores(std::int64_t head_dim) {
    return head_dim > 64 && head_dim <= 128 && head_dim % 8 == 0;
}

/// Pairs of a tile of 64 queries and one of 64 keys before them, whose gradients of scores
/// attention_backward keeps (kernels/hopper): of a sample. And the bytes of a pair and a head,
/// bf16.
constexpr std::int64_t attention_score_pairs(std::int64_t length) {
    const std::int64_t tiles = pieces(length, attention_backward_rows);
    return tiles * (tiles + 1) / 2;
}
constexpr std::int64_t attention_score_pair_bytes =
    std::int64_t{attention_backward_rows} * attention_backward_rows * 2;

}  // namespace loratrain::kernels
