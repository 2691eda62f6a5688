#pragma once

#include <cstdint>

/// Sizes of kernels: workspaces beside tensors, tiles, limits. Numbers alone, without CUDA, for the
/// launchers and for src/plan/memory, which counts memory before there is a GPU. LoRA's sizes are
/// in lora/lora_sizes.h.
namespace loratrain::kernels {

/// Bytes of shared memory that GPUs offer a block of threads: most on sm_90, least on sm_86 and
/// sm_89 (sm_80: 163 KiB). The largest tiles are made for the most; every kernel has tiles for the
/// least. The caller's limit selects the tiles; it changes no bit of a result unless a header says
/// so.
constexpr int most_shared_bytes = 227 * 1024;
constexpr int least_shared_bytes = 99 * 1024;

/// Number of pieces of at most `size` that `count` makes.
constexpr int pieces(std::int64_t count, std::int64_t size) {
    return static_cast<int>((count + size - 1) / size);
}

/// Workspace of cross_entropy() per row: its loss, and whether the guess is wrong.
constexpr std::int64_t cross_entropy_row_bytes = sizeof(double) + sizeof(std::int32_t);

/// Workspace of sum_squares(): the sums of its parts.
constexpr std::int64_t sum_squares_parts = 1024;
constexpr std::int64_t sum_squares_bytes = sum_squares_parts * sizeof(double);

constexpr std::int64_t adamw_workspace_bytes = 64;

/// The most terms of a sum of add_parts(), and its workspace: the squares that its blocks sum.
constexpr std::int32_t most_parts = 320;
constexpr std::int64_t add_parts_workspace = 1024;
constexpr std::int64_t add_parts_bytes = add_parts_workspace * sizeof(double);

/// The most experts of a router, and the most experts per row.
constexpr std::int64_t most_experts = 1024;
constexpr std::int64_t most_experts_per_token = 32;
constexpr std::int64_t most_expert_groups = 32;
constexpr float least_score_sum = 1e-20F;

/// Products of all experts (grouped/grouped.h): rows of one expert in a tile, bytes of a tile in a
/// table, and the most tiles of `copies` rows, however they are divided among experts.
constexpr int expert_tile_rows = 128;
constexpr std::int64_t expert_tile_bytes = 16;
constexpr std::int64_t most_expert_tiles(std::int64_t copies, std::int64_t experts) {
    return copies / expert_tile_rows + (experts < copies ? experts : copies);
}
/// Workspace of expert_down_backward() per row: for each expert_part_columns columns a part of the
/// gradient of the row's weight, fp32.
constexpr int expert_part_columns = 256;
constexpr std::int64_t expert_parts_bytes(std::int64_t size) {
    return std::int64_t{pieces(size, expert_part_columns)} * 4;
}
/// The parts of `copies` rows, up to a multiple of 16 bytes.
constexpr std::int64_t expert_all_parts_bytes(std::int64_t copies, std::int64_t size) {
    return std::int64_t{pieces(copies * expert_parts_bytes(size), 16)} * 16;
}
/// Factors of LoRA that a product of experts adds: [experts, columns of the result, columns of S].
constexpr std::int64_t expert_factors_bytes(std::int64_t experts, std::int64_t columns,
                                            std::int64_t of_s) {
    return experts * columns * of_s * 2;
}

/// Rows of attention's tiles: on tensor cores forward and backward, in plain arithmetic, and
/// backward in kernels/hopper.
constexpr std::int32_t attention_forward_rows = 128;
constexpr std::int32_t attention_backward_rows = 64;
constexpr std::int32_t attention_plain_rows = 32;
constexpr std::int32_t attention_hopper_rows = 128;
constexpr std::int64_t attention_least_rows = attention_plain_rows;

/// Bytes of a tile in a table of tiles, and of a row and head in attention_backward()'s statistics.
constexpr std::int64_t attention_tile_bytes = 16;
constexpr std::int64_t attention_row_bytes = 8;

/// True for heads whose gradients of scores are kept for dQ, among those that warpgroups take. For
/// narrower heads, computing them twice takes less time than writing and reading them (measured on
/// an H200).
constexpr bool keeps_attention_scores(std::int64_t head_dim) {
    return head_dim > 64 && head_dim <= 128 && head_dim % 8 == 0;
}

/// Pairs of a tile of 64 queries and a tile of 64 keys that they see in a sample, whose gradients
/// of scores attention_backward() keeps (kernels/hopper); and the bytes of a pair and a head, bf16.
constexpr std::int64_t attention_score_pairs(std::int64_t length) {
    const std::int64_t tiles = pieces(length, attention_backward_rows);
    return tiles * (tiles + 1) / 2;
}
constexpr std::int64_t attention_score_pair_bytes =
    std::int64_t{attention_backward_rows} * attention_backward_rows * 2;

}  // namespace loratrain::kernels
