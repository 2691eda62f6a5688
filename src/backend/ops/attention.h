#pragma once

#include <cstdint>

#include "backend/ops/rows.h"
#include "base/tensor.h"

namespace loratrain {

/// Operators of attention: rotary positions, causal attention and its gradients.

/// Rotary positions, in place (HF rotate_half). In each head, the first D columns (rotary_dim; 0 =
/// all) are rotated in pairs, j < D/2:
///   (x_j, x_{j+D/2}) <- l (x_j c - x_{j+D/2} s, x_{j+D/2} c + x_j s)
///   c, s = cos, sin of position * inv_freq_j;  l = length
/// interleaved: pairs (x_2j, x_{2j+1}) instead (GLM-4). backward: the transpose.
/// The heads in the first scaled_columns are also multiplied, forward and backward, by
/// 1 + scale_beta ln(1 + floor(position / scale_period)) (queries of Ministral 3); heads must be
/// rotated as a whole then. x: [T, heads * head_dim]; inv_freq: [D/2] fp32.
struct Rope {
    TensorView x;
    std::int64_t head_dim = 0;
    const float* inv_freq = nullptr;
    const std::int32_t* positions = nullptr;  ///< [T]
    bool backward = false;
    std::int64_t scaled_columns = 0;
    float scale_beta = 0.0F;
    float scale_period = 1.0F;
    std::int64_t rotary_dim = 0;  ///< 0: head_dim
    bool interleaved = false;
    float length = 1.0F;

    std::int64_t rotated() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
    bool has_sizes_that_fit() const {
        return head_dim > 0 && rotated() > 0 && rotated() % 2 == 0 && rotated() <= head_dim &&
               x.cols % head_dim == 0 && scaled_columns % head_dim == 0 &&
               scaled_columns <= x.cols && (scaled_columns == 0 || rotated() == head_dim);
    }
};

/// Causal attention within each sample. Query head h reads key-value head h / (Q/G). Query i sees
/// key j if j <= i; with a sliding window if 0 <= i - j < sliding_window (as in transformers). With
/// a soft cap c, scaled scores s become c tanh(s / c) (Gemma 2). With sinks, head h has one score
/// more, sinks[h], and no value for it (gpt_oss). q, o: [T, Q*D]; k, v: [T, G*D]; lse: [T, Q] fp32
/// = log sum exp of the scores, the sink's among them: AttentionBackward needs no more than that.
struct Attention {
    TensorView q;
    TensorView k;
    TensorView v;
    TensorView o;
    float* lse = nullptr;
    std::int64_t head_dim = 0;
    float scale = 1.0F;  ///< of the scores: AttentionSpec::scale()
    PackedRows rows;
    std::int64_t sliding_window = 0;  ///< 0: none
    float soft_cap = 0.0F;            ///< 0: none
    const float* sinks = nullptr;     ///< [Q]; null: none
};

/// Attention of the next token of each of T samples, whose earlier tokens are in a cache. Row t
/// writes its k and v to row first[t] + positions[t] of `keys` and `values`; then its query sees
/// the cache rows from first[t] to that row, as in Attention. of.rows: T samples of one row each,
/// with their positions. lse is not written. Samples use disjoint rows of the cache.
struct CachedAttention {
    Attention of;
    TensorView keys;                      ///< [rows of the cache, G*D]
    TensorView values;                    ///< [rows of the cache, G*D]
    const std::int32_t* first = nullptr;  ///< [T]
};

/// Gradients of Attention; probabilities are recomputed from lse. dq, dk, dv are overwritten.
struct AttentionBackward {
    Attention forward;
    TensorView d_o;
    TensorView dq;
    TensorView dk;
    TensorView dv;
};

}  // namespace loratrain
