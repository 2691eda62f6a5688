#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/attention_tiles.h"
#include "backend/cuda/growing_memory.h"

namespace loratrain {

class CudnnAttention;

/// Attention and its gradients on one stream: forward cuDNN's fused graphs where they apply and are
/// faster (bf16, long samples), else, and for the gradients, the kernels of this program.
/// LORATRAIN_ATTENTION=own or cudnn forces one of them forward (InputError when it was not built).
/// Both are repeatable to the bit. Workspace grows
/// when a larger size first appears, counted in `use` (plan/memory/engine_memory.h bounds it).
class CudaAttention {
  public:
    /// `shared_limit`: bytes of shared memory that a block of the own kernels may have.
    CudaAttention(cudaStream_t stream, DType compute, int shared_limit, MemoryUse* use = nullptr);
    ~CudaAttention();
    CudaAttention(const CudaAttention&) = delete;
    CudaAttention& operator=(const CudaAttention&) = delete;

    /// Allocates what is for attention now; cuDNN's parts if this program was built with it.
    void reserve(const ScratchSizes& sizes);
    /// Before cuDNN builds a graph.
    void before_stalls(const std::function<void()>& call);
    FirstUses first_uses() const;
    void forward(const Attention& op);
    void backward(const AttentionBackward& op);
    void cached(const CachedAttention& op) const;

    /// "own kernels" or "cuDNN 9.19.0"
    const char* description() const;

  private:
    void check_shapes(const Attention& op) const;
    kernels::AttentionParams params_of(const Attention& op) const;
    kernels::AttentionBackwardParams params_of(const AttentionBackward& op) const;
    void own_forward(const Attention& op);

    enum class Choice : std::uint8_t { fastest, own, cudnn };

    static Choice forced_choice();
    bool prefers_cudnn(const PackedRows& rows, double length) const;

    Choice choice_;
    cudaStream_t stream_;
    DType compute_;
    int shared_limit_;
    std::unique_ptr<CudnnAttention> cudnn_;
    StagingRing staging_;
    AttentionTiles forward_tiles_;
    AttentionTiles query_tiles_;
    AttentionTiles key_tiles_;
    GrowingMemory row_stats_;
    GrowingMemory scores_;  ///< never grows: where it is small, scores are computed twice
};

}  // namespace loratrain
