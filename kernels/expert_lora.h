#pragma once

#include "experts.h"

namespace loratrain::kernels {

/// ExpertLora of the program's backend/backend.h for one of its segments: plain kernels, whose
/// blocks find rows by the routes on the device.
struct ExpertLoraParams {
    Matrix wide;    ///< [T k, N]
    Matrix narrow;  ///< [T k, R]
    Routes routes;
    std::int64_t begin = 0;  ///< rows of T
    std::int64_t end = 0;
    const float* factor = nullptr;  ///< of the first expert
    float* gradient = nullptr;
    std::int32_t rank = 0;
    std::int32_t column = 0;
    float scale = 1.0F;
    bool of_b = false;  ///< factor [N, rank], else [rank, N]
};

/// All of `narrow`, before its segments.
cudaError_t clear_narrow(cudaStream_t stream, const Matrix& narrow);
/// Of one segment: a block for each row that an expert has of it.
cudaError_t narrow_experts(cudaStream_t stream, const ExpertLoraParams& params);
cudaError_t widen_experts(cudaStream_t stream, const ExpertLoraParams& params);
/// A thread for each number of each expert's factor, which adds up rows in their order.
cudaError_t add_expert_grads(cudaStream_t stream, const ExpertLoraParams& params);

/// WeighRows.
cudaError_t weigh_rows(cudaStream_t stream, const Matrix& x, const Routes& routes);

}  // namespace loratrain::kernels
