#pragma once

#include <cuda_runtime_api.h>

#include "backend/backend.h"
#include "backend/cuda/attention_tiles.h"
#include "backend/cuda/growing_memory.h"

namespace loratrain {

/// Attention and its gradients on one stream, repeatable to the bit. Workspace grows when a larger
/// size first appears, counted in `use` (plan/memory/engine_memory.h bounds it).
class CudaAttention {
  public:
    /// `shared_limit`: bytes of shared memory that a block of threads may have.
    CudaAttention(cudaStream_t stream, DType compute, int shared_limit, MemoryUse* use = nullptr);
    CudaAttention(const CudaAttention&) = delete;
    CudaAttention& operator=(const CudaAttention&) = delete;

    /// Allocates what is for attention now.
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
    GrowingMemory scores_;  ///< never grows: where it is small, scores are computed twice
};

}  // namespace loratrain
