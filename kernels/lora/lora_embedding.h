#pragma once

#include "kernels/matrix.h"

namespace loratrain::kernels {

/// LoRA on an embedding as src/backend/ops/lora.h has it (LoraIds), of the rows of one slot.
struct LoraIdsParams {
    Matrix s;                           ///< S or dS, [n, R]
    const std::int32_t* ids = nullptr;  ///< [n]
    const float* a = nullptr;           ///< [rank, columns]
    float* grad_a = nullptr;
    std::int64_t columns = 0;
    std::int32_t rank = 0;
    std::int32_t still = -1;
    std::int32_t column = 0;  ///< the slot's first one in S and dS
    float scale = 1.0F;
};

/// S[t, column + i] = scale a[i, ids[t]], or 0 where ids[t] is negative; other columns of S are 0.
cudaError_t lora_gather_a(cudaStream_t stream, const LoraIdsParams& params);

/// grad_a[i, ids[t]] += dS[t, column + i] but for `still`: one warp adds all rows of an id, in
/// their order.
cudaError_t lora_scatter_a(cudaStream_t stream, const LoraIdsParams& params);

}  // namespace loratrain::kernels
