#pragma once

#include "kernels/matrix.h"
#include "kernels/sizes.h"

namespace loratrain::kernels {

/// Kernels of gated delta nets (src/backend/ops/delta_net.h has the formulas).

/// The samples of the packed rows.
struct DeltaSamples {
    std::int64_t tokens = 0;
    std::int64_t samples = 0;
    const std::int32_t* offsets = nullptr;    ///< [samples + 1], first row of each sample
    const std::int32_t* positions = nullptr;  ///< [tokens], position of each row in its sample
};

/// y = silu(p), p_t = sum over j < width of w[:, j] x_(t - width + 1 + j) in the sample. x, y: [T,
/// C] of one type; weight: [C, width] of the same.
struct CausalConvParams {
    Matrix x;
    const void* weight = nullptr;
    std::int32_t width = 0;  ///< 1 to most_conv_width
    Matrix y;
    DeltaSamples rows;
};
cudaError_t causal_conv(cudaStream_t stream, const CausalConvParams& params);
/// dx from dy; params.y is not read.
cudaError_t causal_conv_backward(cudaStream_t stream, const CausalConvParams& params,
                                 const Matrix& dy, const Matrix& dx);

/// g = -exp(a_log) softplus(a + dt_bias), beta = sigmoid(b). a, b: [T, Hv] of one type; g, beta:
/// [T, Hv] fp32 without gaps.
struct DeltaGatesParams {
    Matrix a;
    Matrix b;
    const float* a_log = nullptr;
    const float* dt_bias = nullptr;
    float* g = nullptr;
    float* beta = nullptr;
};
cudaError_t delta_gates(cudaStream_t stream, const DeltaGatesParams& params);
/// da, db from d_g, d_beta; params.g and params.beta are not read. da, db may alias a, b.
struct DeltaGatesBackwardParams {
    DeltaGatesParams forward;
    const float* d_g = nullptr;
    const float* d_beta = nullptr;
    Matrix da;
    Matrix db;
};
cudaError_t delta_gates_backward(cudaStream_t stream, const DeltaGatesBackwardParams& params);

/// y = w o / sqrt(mean(o²) + eps) silu(z), the mean over each of `heads` equal groups of columns.
/// o, z, y: of one type; w: [cols / heads] of the same. y may alias o or z.
struct GatedNormParams {
    Matrix o;
    Matrix z;
    const void* weight = nullptr;
    float eps = 0.0F;
    std::int64_t heads = 1;
    Matrix y;
};
cudaError_t gated_norm(cudaStream_t stream, const GatedNormParams& params);
/// d_o, d_z from dy; y is made again where it has data, and aliases nothing. d_o may alias dy or o,
/// and d_z z.
struct GatedNormBackwardParams {
    GatedNormParams forward;
    Matrix dy;
    Matrix d_o;
    Matrix d_z;
};
cudaError_t gated_norm_backward(cudaStream_t stream, const GatedNormBackwardParams& params);

/// The gated delta rule. q, k: [T, Hk Dk]; v, o: [T, Hv Dv], of one type; g, beta: [T, Hv] fp32
/// without gaps; states: scratch of delta_states(T) matrices [Hv, Dk, Dv] of fp32: that of a chunk
/// that begins with row r and is not a sample's first is matrix r / delta_chunk - 1; workspace:
/// scratch, aligned to 16 bytes. Both may hold anything.
struct DeltaRuleParams {
    Matrix q;
    Matrix k;
    Matrix v;
    const float* g = nullptr;
    const float* beta = nullptr;
    Matrix o;
    std::int32_t key_heads = 0;
    std::int32_t value_heads = 0;
    float* states = nullptr;
    DeltaSamples rows;
    void* workspace = nullptr;
    int shared_limit = least_shared_bytes;  ///< bytes of shared memory that a block may have

    DeltaSizes sizes() const {
        return {q.cols / key_heads, v.cols / value_heads, key_heads, value_heads};
    }
};

/// Gradients, which are overwritten and alias nothing; forward.o is not read.
struct DeltaRuleBackwardParams {
    DeltaRuleParams forward;
    Matrix d_o;
    Matrix dq;
    Matrix dk;
    Matrix dv;
    float* d_g = nullptr;
    float* d_beta = nullptr;
};

/// Launches tensor cores for bf16 in rows of multiples of 16 bytes, with delta_takes_tensor() and
/// the shared memory that kernels/sizes.h names; else the recurrence in plain fp32. Sums have a
/// fixed order, without atomics: reproducible to the bit.
cudaError_t delta_rule(cudaStream_t stream, const DeltaRuleParams& params);
cudaError_t delta_rule_backward(cudaStream_t stream, const DeltaRuleBackwardParams& params);
/// Bytes of forward.workspace that these launches use.
std::int64_t delta_rule_workspace(const DeltaRuleParams& params);
std::int64_t delta_rule_workspace(const DeltaRuleBackwardParams& params);

}  // namespace loratrain::kernels
