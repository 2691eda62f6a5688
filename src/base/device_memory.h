#pragma once

#include <cstdint>

/// GPU memory that the CUDA backend and NCCL take for themselves, beside tensors and the workspaces
/// of kernels (kernels/sizes.h). Bytes, unless a name says otherwise. backend/cuda allocates it,
/// plan/memory/engine_memory.h counts it.
namespace loratrain::device_memory {

inline constexpr std::uint64_t gemm_workspace = std::uint64_t{32} << 20U;  ///< of cuBLASLt
/// The ring of small tables, and the cache of LoRA tables.
inline constexpr std::uint64_t table_ring_sectors = 8;
inline constexpr std::uint64_t table_ring_sector = std::uint64_t{512} << 10U;
inline constexpr std::uint64_t lora_table_cache = std::uint64_t{8} << 20U;
/// Memory that grows with its use (backend/cuda/growing_memory.h) takes whole steps, so that small
/// tables grow once.
inline constexpr std::int64_t growing_step = std::int64_t{64} << 10U;
inline constexpr std::uint64_t attention_tile_tables = 3;
/// The most that attention keeps of the gradients of its scores.
inline constexpr std::int64_t attention_most_scores = std::int64_t{3} << 30U;

/// NCCL's memory for the sums of a group of ranks, by its sources: a connection to each peer, for
/// each channel, at most nccl_most_peers peers. The buffers of its three protocols are 9.6 MiB per
/// connection. A group is limited to nccl_channels channels.
inline constexpr std::uint64_t nccl_connection = std::uint64_t{10} << 20U;
inline constexpr std::int64_t nccl_most_peers = 3;
inline constexpr int nccl_channels = 32;
/// Channels of the exchange of gradients between replicas.
inline constexpr int exchange_channels = 4;

}  // namespace loratrain::device_memory
