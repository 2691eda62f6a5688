#pragma once

#include <cstdint>

#include "backend/ops/rows.h"
#include "base/operators.h"
#include "base/tensor.h"

namespace loratrain {

/// Operators of gated delta nets (Yang et al. 2025, "Gated Delta Networks: Improving Mamba2 with
/// Delta Rule"; arithmetic of Qwen3-Next and Qwen3.5 in transformers). Nothing goes from one sample
/// of the packed rows to another. The cached operators are for samples whose earlier rows were in
/// calls before: a sample begins where its first row has position 0, and goes on where not.

/// Depthwise causal convolution of width K and SiLU, within each sample of T rows:
///   p_t[c] = sum over j < K of w[c, j] x_(t-K+1+j)[c],  x of rows before the sample's first = 0
///   y = silu(p)
/// x, y: [T, C], apart; weight: [C, K].
struct CausalConv {
    TensorView x;
    const void* weight = nullptr;  ///< compute_dtype()
    std::int64_t width = 0;        ///< K, 1 to most_conv_width
    TensorView y;
    PackedRows rows;
};

/// CausalConv of samples that may go on. `kept` has K - 1 rows for each sample: row i is x of the
/// row that is K - 1 - i before the sample's next. They are read of samples that go on, and then
/// are those before the sample's next row; what would lie before its first is never read.
/// kept: [samples (K - 1), C].
struct CachedConv {
    CausalConv of;
    TensorView kept;
};

/// dx = gradient of CausalConv with respect to x from dy; the weights are frozen. p is made again
/// from x; y is not read. dx aliases neither x nor dy.
struct CausalConvBackward {
    CausalConv forward;
    TensorView dy;
    TensorView dx;
};

/// For each row and value head, in fp32:
///   g = -exp(a_log) softplus(a + dt_bias),  beta = 1 / (1 + e^-b)
/// a, b: [T, Hv] in compute_dtype(); g, beta: [T, Hv] fp32.
struct DeltaGates {
    TensorView a;
    TensorView b;
    const float* a_log = nullptr;    ///< [Hv]
    const float* dt_bias = nullptr;  ///< [Hv]
    TensorView g;
    TensorView beta;
};

/// da, db = gradients of DeltaGates from d_g and d_beta [T, Hv] fp32. forward.g and forward.beta
/// are not read. da and db may alias a and b.
struct DeltaGatesBackward {
    DeltaGates forward;
    TensorView d_g;
    TensorView d_beta;
    TensorView da;
    TensorView db;
};

/// The gated delta rule, causal within each sample. Value head h has key head h / (Hv / Hk) and a
/// state S [Dk, Dv], zero before each sample's first row:
///   q^ = q / sqrt(q . q + delta_length_eps) / sqrt(Dk),  k^ = k / sqrt(k . k + delta_length_eps)
///   u_t = beta_t (v_t - e^(g_t) S_(t-1)ᵀ k^_t)
///   S_t = e^(g_t) S_(t-1) + k^_t u_tᵀ
///   o_t = S_tᵀ q^_t
/// q, k: [T, Hk Dk], before they get the length one; v, o: [T, Hv Dv]; g <= 0 and beta: [T, Hv]
/// fp32, without gaps. Sums and states are fp32.
///
/// A sample is cut into chunks of delta_chunk rows, the last one shorter; chunks do not depend on
/// where a sample lies among the rows. `states`, scratch of delta_states(T) matrices [Hv, Dk, Dv]
/// fp32, takes the state before each chunk but a sample's first: before row r, as an index of all
/// rows, in matrix r / delta_chunk - 1. No two chunks share one, however samples lie.
struct DeltaRule {
    TensorView q;
    TensorView k;
    TensorView v;
    TensorView g;
    TensorView beta;
    TensorView o;
    std::int64_t key_heads = 0;    ///< Hk
    std::int64_t value_heads = 0;  ///< Hv, a multiple of Hk
    float* states = nullptr;
    PackedRows rows;

    std::int64_t key_dim() const { return q.cols / key_heads; }      ///< Dk
    std::int64_t value_dim() const { return v.cols / value_heads; }  ///< Dv
};

/// DeltaRule of samples that may go on: `kept`, [samples, Hv, Dk, Dv] fp32, has the state of each
/// sample, which is read of samples that go on, and then is the one behind its last row. Row by
/// row, whatever the sizes; of.states is not used.
struct CachedDeltaRule {
    DeltaRule of;
    float* kept = nullptr;
};

/// Gradients of DeltaRule, with respect to q, k and v as they are before their lengths. dq, dk, dv
/// (compute_dtype()) and d_g, d_beta ([T, Hv] fp32) are overwritten, and alias nothing. The states
/// are made again in forward.states, which may hold anything before; forward.o is not read. Sums
/// over value heads of one key head have a fixed order: two runs are equal to the bit.
struct DeltaRuleBackward {
    DeltaRule forward;
    TensorView d_o;
    TensorView dq;
    TensorView dk;
    TensorView dv;
    TensorView d_g;
    TensorView d_beta;
};

/// y = w o / sqrt(mean(o²) + eps) silu(z), the mean over each head's Dv columns. o, z, y: [T,
/// heads Dv]; w: [Dv]. y may alias o or z.
struct GatedNorm {
    TensorView o;
    TensorView z;
    const void* weight = nullptr;  ///< compute_dtype()
    float eps = 1e-6F;
    std::int64_t heads = 0;
    TensorView y;
};

/// d_o and d_z = gradients of GatedNorm from dy; w is frozen. If forward.y has data, y is made
/// again in it; it aliases nothing. d_o may alias dy or o, and d_z z.
struct GatedNormBackward {
    GatedNorm forward;
    TensorView dy;
    TensorView d_o;
    TensorView d_z;
};

/// Throws Error unless the views of an operator fit together.
void check_shapes(const CausalConv& op);
void check_shapes(const CachedConv& op);
void check_shapes(const CausalConvBackward& op);
void check_shapes(const DeltaGates& op);
void check_shapes(const DeltaGatesBackward& op);
void check_shapes(const DeltaRule& op);
void check_shapes(const DeltaRuleBackward& op);
void check_shapes(const GatedNorm& op);
void check_shapes(const GatedNormBackward& op);

}  // namespace loratrain
