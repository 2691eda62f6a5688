#include "backend/cuda/attention.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

void CudaBackend::attention(const Attention& op) {
    attention_->forward(op);
}

void CudaBackend::attention_backward(const AttentionBackward& op) {
    attention_->backward(op);
}

void CudaBackend::cached_attention(const CachedAttention& op) {
    attention_->cached(op);
}

}  // namespace loratrain
