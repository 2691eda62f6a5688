#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/growing_memory.h"
#include "backend/cuda/staging_ring.h"
#include "kernels/attention.h"

namespace loratrain {

/// Attention on one CUDA stream: tables of tiles, launches, workspace.

enum class TileOrder : std::uint8_t {
    queries,  ///< a tile's work grows with its position in the sample (keys that it sees)
    keys,     ///< a tile's work shrinks with its position (queries that see it)
};

/// The tiles of all samples, most work first; no tile for rows that do not exist.
std::vector<kernels::AttentionTile> attention_tiles(const PackedRows& rows, std::int64_t tile_rows,
                                                    TileOrder order);

/// attention_tiles() in device memory, made again only if the samples change.
class AttentionTiles {
  public:
    explicit AttentionTiles(TileOrder order, MemoryUse* use = nullptr)
        : order_(order), table_(use) {}

    void reserve(std::size_t bytes) {
        tile_rows_ = 0;
        table_.reserve(bytes, "attention tiles");
    }
    void update(const PackedRows& rows, std::int64_t tile_rows, StagingRing& staging);
    const kernels::AttentionTile* data() const {
        return static_cast<const kernels::AttentionTile*>(table_.data());
    }
    std::int32_t count() const { return count_; }

  private:
    TileOrder order_;
    GrowingMemory table_;
    std::vector<std::int32_t> offsets_;
    std::int64_t tile_rows_ = 0;  ///< 0: table_ is not filled
    std::int32_t count_ = 0;
};

/// Attention and its gradients, reproducible to the bit. The workspace grows when a larger size
/// first appears; its bytes are counted in `use` (plan/memory/engine_memory.h bounds them).
class CudaAttention {
  public:
    /// `shared_limit`: bytes of shared memory that a block of threads may have.
    CudaAttention(cudaStream_t stream, DType compute, int shared_limit, MemoryUse* use = nullptr);
    CudaAttention(const CudaAttention&) = delete;
    CudaAttention& operator=(const CudaAttention&) = delete;

    /// Allocates the workspace now.
    void reserve(const ScratchSizes& sizes);
    void forward(const Attention& op);
    void backward(const AttentionBackward& op);
    void cached(const CachedAttention& op) const;

  private:
    void check_shapes(const Attention& op) const;
    kernels::AttentionParams params_of(const Attention& op) const;
    kernels::AttentionBackwardParams params_of(const AttentionBackward& op) const;

    cudaStream_t stream_;
    DType compute_;
    int shared_limit_;
    StagingRing staging_;
    AttentionTiles forward_tiles_;
    AttentionTiles query_tiles_;
    AttentionTiles key_tiles_;
    GrowingMemory row_stats_;
    GrowingMemory scores_;  ///< never grows; if it is too small, scores are computed twice
};

}  // namespace loratrain
