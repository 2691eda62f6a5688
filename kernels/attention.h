#pragma once

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Rows [begin, begin + tile size) of the sample whose `length` rows start at row `first` of the
/// packed matrices; cut off at the end of the sample. `pairs`: of a tile of 64 queries and one of
/// 64 keys that they see, those of the samples before this one, n (n + 1) / 2 for n tiles.
struct AttentionTile {
    std::int32_t first;
    std::int32_t begin;
    std::int32_t length;
    std::int32_t pairs;
};

/// Causal attention inside each sample, grouped queries: head h reads key-value head
/// h / (heads / kv_heads). q, o: [tokens, heads * head_dim], k, v: [tokens, kv_heads * head_dim],
/// all of one element type; lse: [tokens, heads] = log sum exp of the scaled scores. Query i sees
/// key j if 0 <= i - j < sliding_window. With a soft cap c scaled scores s become c tanh(s / c).
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
    std::int32_t sliding_window;  ///< no_sliding_window: all keys before
    float soft_cap;               ///< 0: none
    const AttentionTile* tiles;   ///< query tiles of attention_tile_rows().forward rows
    std::int32_t tile_count;
    int shared_limit = least_shared_bytes;  ///< bytes of shared memory that a block may have
};

/// Overwrites dq, dk, dv. Sums in a fixed order, without atomics: repeatable to the bit.
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
    /// How much there is to do: tiles of 64 queries of the longest sample, and pairs of one and of
    /// a tile of 64 keys of all samples, as `pairs` of a tile counts them.
    std::int32_t longest_tiles;
    std::int64_t tile_pairs;
    /// Workspace for the gradients of scores in bf16, 8 KiB for each of tile_pairs and each head:
    /// those of so many key-value heads at a time. 0 of them: computed once more for dQ, which has
    /// the same bits.
    void* scores;
    std::int32_t score_kv_heads;
};

struct AttentionTileRows {
    std::int32_t forward;
    std::int32_t query;
    std::int32_t key;
};

constexpr std::int32_t no_sliding_window = 0x7fffffff;

/// Wider heads are refused.
constexpr std::int32_t attention_max_head_dim = 256;
/// The widest head whose gradients fit in that much shared memory: 181 in fp32 with the least.
std::int32_t attention_most_head_dim(Element type, int shared_limit);

/// The tile sizes that the launchers below expect for these operands.
AttentionTileRows attention_tile_rows(const AttentionParams& params);
AttentionTileRows attention_tile_rows(const AttentionBackwardParams& params);

/// bf16 with head_dim <= 128 and a multiple of 8, everything in multiples of 16 bytes: tensor
/// cores; without a soft cap on a GPU of compute capability 9.0 by its warpgroups. Anything else:
/// plain fp32 arithmetic.
cudaError_t attention_forward(cudaStream_t stream, const AttentionParams& params);
cudaError_t attention_backward(cudaStream_t stream, const AttentionBackwardParams& params);

}  // namespace loratrain::kernels
