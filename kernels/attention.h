#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Attention within the samples of a microbatch: forward, backward, and with a cache of keys and
/// values.

/// Rows [begin, begin + tile size) of a sample, cut off at the sample's end. The sample has
/// `length` rows from row `first` of the packed matrices. `pairs`: number of pairs of a tile of 64
/// queries and a tile of 64 keys that they see in the samples before; a sample of n tiles has n (n
/// + 1) / 2.
struct AttentionTile {
    std::int32_t first;
    std::int32_t begin;
    std::int32_t length;
    std::int32_t pairs;
};

/// Causal attention within each sample. Query head h reads key-value head h / (heads / kv_heads).
/// Query i sees key j if 0 <= i - j < sliding_window. With a soft cap c, scaled scores s become c
/// tanh(s / c). With sinks, head h has one score more, sinks[h], and no value for it. q, o:
/// [tokens, heads * head_dim]; k, v: [tokens, kv_heads * head_dim]; all of one element type. lse:
/// [tokens, heads] fp32 = log sum exp of the scaled scores, the sink's among them, which is all
/// that backward needs of it: a value of 0 has no part in dO . O.
struct AttentionParams {
    Matrix q;
    Matrix k;
    Matrix v;
    Matrix o;
    float* lse;
    std::int32_t heads;
    std::int32_t kv_heads;
    std::int32_t head_dim;
    float scale;
    std::int32_t sliding_window;  ///< no_sliding_window = all earlier keys
    float soft_cap;               ///< 0 = none
    const AttentionTile* tiles;   ///< query tiles of attention_tile_rows().forward rows
    std::int32_t tile_count;
    int shared_limit = least_shared_bytes;  ///< bytes of shared memory that a block may have
    const float* sinks = nullptr;           ///< [heads]; null: none
};

/// Gradients dq, dk, dv, which are overwritten. Sums have a fixed order, without atomics:
/// reproducible to the bit.
struct AttentionBackwardParams {
    AttentionParams forward;  ///< its tiles are not read
    Matrix d_o;
    Matrix dq;
    Matrix dk;
    Matrix dv;
    float2* row_stats;  ///< workspace [heads, tokens]
    const AttentionTile* query_tiles;
    std::int32_t query_tile_count;
    const AttentionTile* key_tiles;
    std::int32_t key_tile_count;
    /// Amount of work: tiles of 64 queries of the longest sample, and the pairs of all samples
    /// (AttentionTile::pairs).
    std::int32_t longest_tiles;
    std::int64_t tile_pairs;
    /// Workspace for the gradients of scores in bf16, 8 KiB for each pair and head, of
    /// score_kv_heads key-value heads at a time. score_kv_heads = 0: they are computed a second
    /// time for dQ, with equal bits.
    void* scores;
    std::int32_t score_kv_heads;
};

struct AttentionTileRows {
    std::int32_t forward;
    std::int32_t query;
    std::int32_t key;
};

constexpr std::int32_t no_sliding_window = 0x7fffffff;

/// The widest head whose gradients fit in `shared_limit` bytes of shared memory: 181 in fp32 with
/// least_shared_bytes.
std::int32_t attention_most_head_dim(Element type, int shared_limit);

/// The rows of tiles that the launchers expect for these operands.
AttentionTileRows attention_tile_rows(const AttentionParams& params);
AttentionTileRows attention_tile_rows(const AttentionBackwardParams& params);

/// Launches the fastest implementation that takes the operands:
///   warpgroups of compute capability 9.0   as tensor cores, without a soft cap
///   tensor cores                           bf16, head_dim a multiple of 8, rows in multiples of
///                                          16 bytes
///   plain arithmetic in fp32               all others
/// On the first two, wide heads (attention_narrow_head_dim) have kernels of their own.
cudaError_t attention_forward(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward(cudaStream_t stream, const AttentionBackwardParams& params);

/// Attention of one new row per sample over a cache of the sample's keys and values; otherwise as
/// AttentionParams. Row t writes its k and v to row first[t] + positions[t] of `keys` and `values`;
/// its query sees the rows from first[t] to that row that lie in the sliding window. All matrices
/// have one element type; sums in fp32; head_dim <= attention_max_head_dim.
struct CachedAttentionParams {
    AttentionParams of;  ///< lse and tiles are not read
    Matrix keys;
    Matrix values;
    const std::int32_t* first;      ///< [rows]
    const std::int32_t* positions;  ///< [rows]
};

cudaError_t cached_attention(cudaStream_t stream, const CachedAttentionParams& params);

}  // namespace loratrain::kernels
