#pragma once

#include <cstdint>

/// What the CUDA backend takes for itself beside tensors, in bytes unless a name says otherwise:
/// backend/cuda allocates it, plan/memory/engine_memory.h counts it.
namespace loratrain::device_memory {

inline constexpr std::uint64_t gemm_workspace = std::uint64_t{32} << 20U;  ///< of cuBLASLt
/// The ring of small tables, and the cache of LoRA tables.
inline constexpr std::uint64_t table_ring_sectors = 8;
inline constexpr std::uint64_t table_ring_sector = std::uint64_t{512} << 10U;
inline constexpr std::uint64_t lora_table_cache = std::uint64_t{8} << 20U;
/// Memory that grows takes whole steps, so that small tables grow once.
inline constexpr std::int64_t growing_step = std::int64_t{64} << 10U;
/// A row of cross_entropy: its loss, and whether it is wrong.
inline constexpr std::int64_t cross_entropy_row = sizeof(double) + sizeof(std::int32_t);
inline constexpr std::int64_t sum_squares = 1024 * sizeof(double);

/// What NCCL takes for the sums of a group of ranks, by its sources (its buffers for three
/// protocols are 9.6 MiB): a channel's connection to a peer, at most so many peers, and the
/// channels that a group is held to.
inline constexpr std::uint64_t nccl_connection = std::uint64_t{10} << 20U;
inline constexpr std::int64_t nccl_most_peers = 3;
inline constexpr int nccl_channels = 32;
/// Likewise of the exchange of gradients between replicas.
inline constexpr int exchange_channels = 4;
/// Of that exchange: squares of a batch's sums, and of the blocks that add them up.
inline constexpr std::uint64_t exchange_numbers = (1 + 1024) * sizeof(double);

/// Attention: statistics of a row and head; three tables of tiles, and the fewest rows of a tile.
inline constexpr std::int64_t attention_row_statistics = 8;
inline constexpr std::int64_t attention_tile = 16;
inline constexpr std::uint64_t attention_tile_tables = 3;
inline constexpr std::int64_t attention_least_tile_rows = 32;
/// Gradients of attention's scores, of a pair of tiles and a head; more than the most are not kept.
inline constexpr std::int64_t attention_score_pair = std::int64_t{64} * 64 * 2;
inline constexpr std::int64_t attention_most_scores = std::int64_t{3} << 30U;

/// Sizes that the scratch of the LoRA kernels on tensor cores depends on.
inline constexpr std::int64_t lora_pass_columns =
    256;  ///< features that a thread block passes over
inline constexpr std::int64_t lora_part_columns = 1024;  ///< whose dS a thread block adds up
/// Likewise of a small dY, tokens too, which has at most so many elements and columns.
inline constexpr std::int64_t lora_small_part_columns = 512;
inline constexpr std::int64_t lora_small_pass = std::int64_t{3} << 24U;
inline constexpr std::int64_t lora_small_columns = 8192;
/// Tokens of a tile where no slot has more than lora_pass_ranks and dY at least so many elements.
inline constexpr std::int64_t lora_narrow_rows = 256;
inline constexpr std::int64_t lora_narrow_pass = std::int64_t{10} << 20U;
/// Features whose S a thread block adds up where it is made with the activation.
inline constexpr std::int64_t lora_gated_columns = 512;
inline constexpr std::int64_t lora_pass_rows = 128;    ///< tokens of a tile are a multiple
inline constexpr std::int64_t lora_pass_blocks = 2;    ///< of a multiprocessor at once
inline constexpr std::int64_t lora_pass_ranks = 16;    ///< ranks of a slot and linear, likewise
inline constexpr std::int64_t lora_copy_ranks = 8;     ///< rows of the copies of A, likewise
inline constexpr std::int64_t lora_copy_columns = 64;  ///< and their columns

}  // namespace loratrain::device_memory
