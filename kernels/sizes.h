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

/// Columns of a head: the most that attention takes, and the most of a narrow one. Wide heads, of
/// more columns, have kernels of their own on tensor cores, with tiles of fewer rows.
constexpr std::int32_t attention_max_head_dim = 256;
constexpr std::int32_t attention_narrow_head_dim = 128;

/// Rows of attention's tiles: on tensor cores forward and backward, and of wide heads; in plain
/// arithmetic; and backward in kernels/hopper.
constexpr std::int32_t attention_forward_rows = 128;
constexpr std::int32_t attention_backward_rows = 64;
constexpr std::int32_t attention_wide_rows = 64;
constexpr std::int32_t attention_plain_rows = 32;
constexpr std::int32_t attention_hopper_rows = 128;
constexpr std::int64_t attention_least_rows = attention_plain_rows;

/// Bytes of a tile in a table of tiles, and of a row and head in attention_backward()'s statistics.
constexpr std::int64_t attention_tile_bytes = 16;
constexpr std::int64_t attention_row_bytes = 8;

/// True for heads that attention in bf16 takes on tensor cores; plain kernels compute all others.
constexpr bool attention_on_tensor_cores(std::int64_t head_dim) {
    return head_dim <= attention_max_head_dim && head_dim % 8 == 0;
}

/// True for heads whose gradients of scores are kept for dQ, among those that warpgroups take. For
/// narrower heads, computing them twice takes less time than writing and reading them (measured on
/// an H200).
constexpr bool keeps_attention_scores(std::int64_t head_dim) {
    return head_dim > 64 && head_dim <= attention_narrow_head_dim &&
           attention_on_tensor_cores(head_dim);
}

/// Pairs of a tile of 64 queries and a tile of 64 keys that they see in a sample, whose gradients
/// of scores attention_backward() keeps (kernels/hopper); and the bytes of a pair and a head, bf16.
constexpr std::int64_t attention_score_pairs(std::int64_t length) {
    const std::int64_t tiles = pieces(length, attention_backward_rows);
    return tiles * (tiles + 1) / 2;
}
constexpr std::int64_t attention_score_pair_bytes =
    std::int64_t{attention_backward_rows} * attention_backward_rows * 2;

/// Gated delta nets (delta/): the widest convolution, rows of a chunk of a sample, columns of a
/// head that tensor cores take, the widest head in plain arithmetic, and what is added to squares
/// of lengths.
constexpr int most_conv_width = 8;
constexpr int delta_chunk = 64;
constexpr int delta_tensor_dim = 128;
constexpr int delta_most_dim = 256;
constexpr float delta_length_eps = 1e-6F;

struct DeltaSizes {
    std::int64_t key_dim;
    std::int64_t value_dim;
    std::int64_t key_heads;
    std::int64_t value_heads;
};

/// Shared memory of a block of delta_rule() and of delta_rule_backward() with tensor cores.
constexpr int delta_shared_bytes = least_shared_bytes;
constexpr int delta_backward_shared_bytes = 160 * 1024;

/// True for sizes that tensor cores take, in bf16.
constexpr bool delta_takes_tensor(const DeltaSizes& sizes) {
    return sizes.key_dim == delta_tensor_dim && sizes.value_dim == delta_tensor_dim;
}

/// Workspace of delta_rule() with tensor cores, per row: the factors of q and k that give them
/// their lengths; for each value head sums of g and both factors times the decays they make, all in
/// fp32, and W, U and P in bf16. delta_rule_backward() has beside it T and the gradient of U in
/// bf16. (kernels/delta/README.md)
constexpr std::int64_t delta_rule_row_bytes(const DeltaSizes& sizes) {
    return sizes.key_heads * 8 +
           sizes.value_heads * (12 + 2 * (sizes.key_dim + sizes.value_dim + delta_chunk));
}
constexpr std::int64_t delta_tensor_backward_row_bytes(const DeltaSizes& sizes) {
    return delta_rule_row_bytes(sizes) + sizes.value_heads * 2 * (delta_chunk + sizes.value_dim);
}

/// The most states of `tokens` rows (one before each chunk but the first of a sample), of fp32.
constexpr std::int64_t delta_states(std::int64_t tokens) {
    return tokens > 0 ? (tokens - 1) / delta_chunk : 0;
}

/// Workspace of delta_rule(); plain arithmetic needs none.
constexpr std::int64_t delta_rule_bytes(const DeltaSizes& sizes, std::int64_t tokens,
                                        bool is_bf16) {
    return is_bf16 && delta_takes_tensor(sizes) ? tokens * delta_rule_row_bytes(sizes) : 0;
}

/// Workspace of delta_rule_backward() in plain arithmetic, in fp32: v - e^g Sᵀ k and the gradient
/// of u of each row, dq and dk of each row, the gradients of all states.
constexpr std::int64_t delta_plain_backward_bytes(const DeltaSizes& sizes, std::int64_t tokens) {
    const std::int64_t values = sizes.value_heads * sizes.value_dim;
    const std::int64_t keys = sizes.key_heads * sizes.key_dim;
    return 4 * (2 * tokens * (values + keys) + values * sizes.key_dim * delta_states(tokens));
}

/// Workspace of delta_rule_backward() for operands in rows of 16 bytes.
constexpr std::int64_t delta_rule_backward_bytes(const DeltaSizes& sizes, std::int64_t tokens,
                                                 bool is_bf16, int shared_limit) {
    return is_bf16 && delta_takes_tensor(sizes) && shared_limit >= delta_backward_shared_bytes
               ? tokens * delta_tensor_backward_row_bytes(sizes)
               : delta_plain_backward_bytes(sizes, tokens);
}

}  // namespace loratrain::kernels
