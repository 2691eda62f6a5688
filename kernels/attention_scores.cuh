#pragma once

#include <cmath>

#include "attention_launch.h"
#include "attention_tile.cuh"

/// What the tensor-core attention kernels do with a warp's scores between their products: the
/// running softmax of outputs, caps, hidden keys, probabilities once lse is known.

namespace loratrain::kernels {

/// Running softmax of a warp's query rows, 16 * m_tiles; `sum` holds this thread's columns only.
template <int dim, int m_tiles>
struct Rows {
    float o[m_tiles][dim / 8][4] = {};
    float largest[m_tiles][2];
    float sum[m_tiles][2] = {};
};

/// What makes outputs of the sums of rows r and r + 8 of 16, whose first is query `begin` of the
/// sample; stores their lse.
template <bool sinks, int dim, int m_tiles>
__device__ __forceinline__ void finish_rows(const Rows<dim, m_tiles>& rows, int m, int begin,
                                            const AttentionParams& p, const AttentionTile& tile,
                                            int head, int lane, float (&inverse)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float sum = quad_sum(rows.sum[m][half]);
        float base = rows.largest[m][half] * p.scale;
        float correction = 1.0F;
        if constexpr (sinks) correction = add_sink(p.sinks[head], base, sum);
        inverse[half] = correction / sum;
        const int row = begin + half * 8 + (lane >> 2);
        if ((lane & 3) == 0 && row < tile.length) {
            p.lse[static_cast<std::int64_t>(tile.first + row) * p.heads + head] = base + logf(sum);
        }
    }
}

/// Scores to probabilities; what was summed before is rescaled.
template <int dim, int m_tiles, int n_tiles>
__device__ __forceinline__ void update_softmax(Rows<dim, m_tiles>& rows,
                                               float (&scores)[m_tiles][n_tiles][4], float scale) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = rows.largest[m][half];
#pragma unroll
            for (int n = 0; n < n_tiles; ++n) {
                largest = fmaxf(largest, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
            }
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
            largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
            // -inf: the row has not seen any key yet.
            const float base = largest == -INFINITY ? 0.0F : largest;
            const float correction = exp2_fast((rows.largest[m][half] - base) * scale);
            rows.largest[m][half] = largest;
            const float shift = base * scale;
            float sum = 0.0F;
#pragma unroll
            for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; ++i) {
                    scores[m][n][i] = exp2_fast(fmaf(scores[m][n][i], scale, -shift));
                    sum += scores[m][n][i];
                }
            }
            rows.sum[m][half] = rows.sum[m][half] * correction + sum;
#pragma unroll
            for (int n = 0; n < dim / 8; ++n) {
                rows.o[m][n][2 * half] *= correction;
                rows.o[m][n][2 * half + 1] *= correction;
            }
        }
    }
}

/// Keys that the query does not see become -inf. `ahead` = first query row of the warp - first key.
template <int m_tiles, int n_tiles>
__device__ __forceinline__ void hide(float (&scores)[m_tiles][n_tiles][4], int ahead,
                                     int sliding_window, int lane) {
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = ahead + m * 16 + (lane >> 2) + (i >> 1) * 8;
                const int key = n * 8 + ((lane & 3) << 1) + (i & 1);
                if (is_hidden(row - key, sliding_window)) scores[m][n][i] = -INFINITY;
            }
        }
    }
}

/// Scores become what times the scale is capped ones.
template <int m_tiles, int n_tiles>
__device__ __forceinline__ void cap_scores(float (&scores)[m_tiles][n_tiles][4], float scale,
                                           float cap) {
    const float down = scale / cap;
    const float up = cap / scale;
#pragma unroll
    for (int m = 0; m < m_tiles; ++m) {
#pragma unroll
        for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                scores[m][n][i] = up * hyperbolic_tangent<Bf16>(scores[m][n][i] * down);
        }
    }
}

/// Scores in units of log 2, and with a cap what they are capped to.
struct ScoreScale {
    float scale;  ///< of log 2
    float down;   ///< to the argument of tanh
    float up;     ///< from tanh
    __device__ __forceinline__ explicit ScoreScale(const AttentionParams& p)
        : scale(p.scale * log2_e), down(p.scale / p.soft_cap), up(p.soft_cap * log2_e) {}

    /// The score and `added`.
    template <bool capped>
    __device__ __forceinline__ float of(float score, float added) const {
        if constexpr (capped) return fmaf(hyperbolic_tangent<Bf16>(score * down), up, added);
        return fmaf(score, scale, added);
    }
    /// d capped / d score, for scores that are so likely.
    template <bool capped>
    __device__ __forceinline__ float slope(float probability, float lse) const {
        if constexpr (!capped) return 1.0F;
        if (probability == 0.0F) return 0.0F;
        const float t = (__log2f(probability) + lse) / up;
        return 1.0F - t * t;
    }
};

/// Transposed scores (16 keys x 8 * n_tiles queries) to probabilities; with `some_hidden` queries
/// that do not see the key get 0. `ahead` = first query - the warp's first key.
template <bool some_hidden, bool capped, int n_tiles>
__device__ __forceinline__ void probabilities(float (&scores)[1][n_tiles][4], const float2* stats,
                                              const ScoreScale& scale, int ahead,
                                              int sliding_window, int lane) {
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        const int query = n * 8 + ((lane & 3) << 1);
        const float4 pair = *reinterpret_cast<const float4*>(stats + query);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float lse = (i & 1) == 0 ? pair.x : pair.z;
            float p = exp2_fast(scale.of<capped>(scores[0][n][i], -lse));
            const int distance = ahead + query + (i & 1) - ((lane >> 2) + (i >> 1) * 8);
            if (some_hidden && is_hidden(distance, sliding_window)) p = 0.0F;
            scores[0][n][i] = p;
        }
    }
}

/// Gradients of probabilities, transposed, to those of scores before a cap.
template <bool capped, int n_tiles>
__device__ __forceinline__ void key_score_gradients(float (&gradients)[1][n_tiles][4],
                                                    const float (&probabilities)[1][n_tiles][4],
                                                    const float2* stats, const ScoreScale& scale,
                                                    int lane) {
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
        const float4 pair = *reinterpret_cast<const float4*>(stats + n * 8 + ((lane & 3) << 1));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 row = (i & 1) == 0 ? float2{pair.x, pair.y} : float2{pair.z, pair.w};
            float gradient = probabilities[0][n][i] * (gradients[0][n][i] - row.y);
            if constexpr (capped) gradient *= scale.slope<capped>(probabilities[0][n][i], row.x);
            gradients[0][n][i] = gradient;
        }
    }
}

/// Scores of 16 queries x 8 * n_tiles keys, and gradients of their probabilities, to gradients of
/// scores before a cap. `ahead` = the warp's first query - first key; `stats` of rows r and r + 8.
template <bool capped, int n_tiles>
__device__ __forceinline__ void query_score_gradients(float (&gradients)[1][n_tiles][4],
                                                      const float (&scores)[1][n_tiles][4],
                                                      const float2 (&stats)[2],
                                                      const ScoreScale& scale, bool some_hidden,
                                                      int ahead, int sliding_window, int lane) {
#pragma unroll
    for (int n = 0; n < n_tiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 row = stats[i >> 1];
            float probability = exp2_fast(scale.of<capped>(scores[0][n][i], -row.x));
            const int query = (lane >> 2) + (i >> 1) * 8;
            const int key = n * 8 + ((lane & 3) << 1) + (i & 1);
            const bool hidden = is_hidden(ahead + query - key, sliding_window);
            if (some_hidden && hidden) probability = 0.0F;
            float gradient = probability * (gradients[0][n][i] - row.y);
            if constexpr (capped) gradient *= scale.slope<capped>(probability, row.x);
            gradients[0][n][i] = gradient;
        }
    }
}

}  // namespace loratrain::kernels
