#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/staging_ring.h"

namespace loratrain {

/// cuDNN's fused attention on packed samples (bf16), forward: own kernels make the gradients (with
/// cuDNN 9.14 and cudnn-frontend 1.32 those of keys and values were wrong). Graphs are built when a
/// shape first appears, and kept for all backends of this process on the device.
class CudnnAttention {
  public:
    virtual ~CudnnAttention() = default;

    /// Allocates the workspace and the tables now.
    virtual void reserve(std::size_t workspace_bytes, std::size_t table_bytes) = 0;
    /// Before a graph is built.
    virtual void before_stalls(const std::function<void()>& call) = 0;
    /// Graphs that were built.
    virtual const FirstUses& first_uses() const = 0;
    /// False, with nothing done, when cuDNN does not take these operands; refusal() says why.
    virtual bool forward(const Attention& op) = 0;
    virtual const std::string& refusal() const = 0;

    virtual const char* description() const = 0;  ///< "cuDNN 9.19.0"
};

bool cudnn_attention_built();

/// nullptr when this program was built without cuDNN. Device memory is counted in `use`.
std::unique_ptr<CudnnAttention> make_cudnn_attention(cudaStream_t stream, StagingRing& staging,
                                                     MemoryUse* use);

}  // namespace loratrain
