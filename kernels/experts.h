#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Operators of experts: routing, sums over a row's experts, LoRA in experts. Formulas and shapes:
/// src/backend/ops/experts.h.

/// ExpertRoutes in device memory.
struct Routes {
    std::int64_t tokens = 0;
    std::int64_t experts = 0;    ///< of this lane
    std::int64_t per_token = 0;  ///< at most most_experts_per_token
    float* probabilities = nullptr;
    float* weights = nullptr;
    std::int32_t* chosen = nullptr;
    std::int32_t* places = nullptr;
    std::int32_t* rows = nullptr;
    std::int32_t* offsets = nullptr;
    std::int64_t before = 0;  ///< of other lanes' experts; routed(): at most most_experts
    std::int64_t others = 0;
    __host__ __device__ std::int64_t routed() const { return experts + others; }
};

/// How Route and RouteBackward make weights of logits.
struct RouterRule {
    bool normalised = false;
    bool sigmoid = false;         ///< else softmax
    const float* bias = nullptr;  ///< null: 0; as groups of the choice alone
    int groups = 1;               ///< at most most_expert_groups
    int used_groups = 1;
    float scale = 1.0F;
};

/// Route; logits in fp32. One warp for each row makes the scores and chooses by the largest keys.
/// Then one block for each of the lane's experts finds the expert's rows among the choices of all
/// rows; no result depends on the order of atomics.
cudaError_t route(cudaStream_t stream, const Matrix& logits, const Routes& to,
                  const RouterRule& rule);

/// CombineExperts.
cudaError_t combine_experts(cudaStream_t stream, const Matrix& y, const Matrix& x,
                            const Matrix& added, const Routes& routes, bool weighted);

/// WeighExperts, one warp for each row.
cudaError_t weigh_experts(cudaStream_t stream, const Matrix& inner, const Matrix& product,
                          float* d_weights, const Routes& routes);

/// y_p += bias_e for each place p and its expert e. y: [T k, N]; bias: [E, N].
cudaError_t add_expert_bias(cudaStream_t stream, const Matrix& y, const float* bias,
                            const Routes& routes);

/// d_weights[t, j] += dy_t . bias_e of the experts e of row t, one warp for each. dy: [T, H]; bias:
/// [E, H].
cudaError_t add_bias_gradients(cudaStream_t stream, const Matrix& dy, const float* bias,
                               float* d_weights, const Routes& routes);

/// RouteBackward, one warp for each row.
cudaError_t route_backward(cudaStream_t stream, const Matrix& d_logits, const float* d_weights,
                           const Routes& routes, const RouterRule& rule);

/// ExpertLora for one segment, in plain kernels whose blocks find their rows by the routes on the
/// device.
struct ExpertLoraParams {
    Matrix wide;    ///< [T k, N]; with `gathered` [T, N]
    Matrix narrow;  ///< [T k, R]
    Routes routes;
    std::int64_t begin = 0;  ///< rows [begin, end) of T
    std::int64_t end = 0;
    const float* factor = nullptr;  ///< of expert 0
    float* gradient = nullptr;      ///< of expert 0
    std::int32_t rank = 0;
    std::int32_t column = 0;
    float scale = 1.0F;
    bool of_b = false;      ///< factors are [N, rank], else [rank, N]
    bool gathered = false;  ///< row t of `wide` is that of all its places; not of widen_experts()
};

/// narrow = 0; before the segments.
cudaError_t clear_narrow(cudaStream_t stream, const Matrix& narrow);
/// One block for each row of an expert in the segment.
cudaError_t narrow_experts(cudaStream_t stream, const ExpertLoraParams& params);
cudaError_t widen_experts(cudaStream_t stream, const ExpertLoraParams& params);
/// One thread for each number of each expert's factor, which adds up rows in order.
cudaError_t add_expert_grads(cudaStream_t stream, const ExpertLoraParams& params);

/// WeighRows.
cudaError_t weigh_rows(cudaStream_t stream, const Matrix& x, const Routes& routes);

}  // namespace loratrain::kernels
