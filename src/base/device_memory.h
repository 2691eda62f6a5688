#pragma once

#include <cstdint>

/// What the CUDA backend takes for itself beside tensors and what its kernels need
/// (kernels/sizes.h), in bytes unless a name says otherwise: backend/cuda allocates it,
/// plan/memory/engine_memory.h counts it.
namespace loratrain::device_memory {

inline constexpr std::uint64_t gemm_workspace = std::uint64_t{32} << 20U;  ///< of cuBLASLt
/// The ring of small tables, and the cache of LoRA tables.
inline constexpr std::uint64_t table_ring_sectors = 8;
inline constexpr std::uint64_t table_ring_sector = std::uint64_t{512} << 10U;
inline constexpr std::uint64_t lora_table_cache = std::uint64_t{8} << 20U;
/// Memory that grows takes whole steps, so that small tables grow once.
inline constexpr std::int64_t growing_step = std::int64_t{64} << 10U;
inline constexpr std::uint64_t attention_tile_tables = 3;
/// Gradients of attention's scores; more are not kept.
inline constexpr std::int64_t attention_most_scores = std::int64_t{3} << 30U;

/// What NCCL takes for the sums of a group of ranks, by its sources (its buffers for three
/// protocols are 9.6 MiB): a channel's connection to a peer, at most so many peers, and the
/// channels that a group is held to.
inline constexpr std::uint64_t nccl_connection = std::uint64_t{10} << 20U;
inline constexpr std::int64_t nccl_most_peers = 3;
inline constexpr int nccl_channels = 32;
/// Likewise of the exchange of gradients between replicas.
inline constexpr int exchange_channels = 4;

}  // namespace loratrain::device_memory
