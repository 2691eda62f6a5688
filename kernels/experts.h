#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// ExpertRoutes of the program's backend/ops/experts.h, on the device.
struct Routes {
    std::int64_t tokens = 0;
    std::int64_t experts = 0;    ///< at most most_experts
    std::int64_t per_token = 0;  ///< at most most_experts_per_token
    float* probabilities = nullptr;
    float* weights = nullptr;
    std::int32_t* chosen = nullptr;
    std::int32_t* places = nullptr;
    std::int32_t* rows = nullptr;
    std::int32_t* offsets = nullptr;
};

/// Route: softmax and the largest of each row by one warp, then the rows in the order of experts by
/// one block for each expert, which looks through what all rows have chosen: no order of atomics
/// enters.
cudaError_t route(cudaStream_t stream, const Matrix& logits, const Routes& to, bool normalised);

/// CombineExperts.
cudaError_t combine_experts(cudaStream_t stream, const Matrix& y, const Matrix& x,
                            const Matrix& added, const Routes& routes, bool weighted);

/// WeighExperts, one warp for each row.
cudaError_t weigh_experts(cudaStream_t stream, const Matrix& inner, const Matrix& product,
                          float* d_weights, const Routes& routes);

/// RouteBackward, one warp for each row.
cudaError_t route_backward(cudaStream_t stream, const Matrix& d_logits, const float* d_weights,
                           const Routes& routes, bool normalised);

}  // namespace loratrain::kernels
