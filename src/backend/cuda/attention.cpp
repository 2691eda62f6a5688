#include "backend/cuda/attention.h"

#include <algorithm>
#include <array>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/device_memory.h"
#include "base/error.h"
#include "kernels/attention_launch.h"

namespace loratrain {

namespace {

constexpr std::size_t staging_sectors = 4;
constexpr std::size_t staging_bytes = 256U << 10U;
static_assert(sizeof(float2) == kernels::attention_row_bytes);
static_assert(sizeof(kernels::AttentionTile) == kernels::attention_tile_bytes);
constexpr const char* row_stats_name = "attention row statistics";

void count_tile_pairs(const PackedRows& rows, kernels::AttentionBackwardParams& params) {
    constexpr std::int64_t tile_rows = kernels::attention_backward_rows;
    for (std::int64_t i = 0; i < rows.samples; ++i) {
        const std::int32_t length = rows.host_offsets[i + 1] - rows.host_offsets[i];
        const auto tiles = static_cast<std::int32_t>(ceil_div(length, tile_rows));
        params.longest_tiles = std::max(params.longest_tiles, tiles);
        params.tile_pairs += kernels::attention_score_pairs(length);
    }
}

/// Number of key-value heads at a time whose gradients of scores fit, in equal parts; 0 = not one.
std::int32_t kv_heads_at_once(const kernels::AttentionParams& params, std::int64_t bytes_of_head,
                              std::int64_t room) {
    const std::int64_t of_group = params.heads / params.kv_heads * bytes_of_head;
    const std::int64_t fit = std::min<std::int64_t>(room / of_group, params.kv_heads);
    if (fit == 0) return 0;
    const std::int64_t parts = ceil_div(std::int64_t{params.kv_heads}, fit);
    return static_cast<std::int32_t>(ceil_div(std::int64_t{params.kv_heads}, parts));
}

}  // namespace

std::vector<kernels::AttentionTile> attention_tiles(const PackedRows& rows, std::int64_t tile_rows,
                                                    TileOrder order) {
    std::vector<kernels::AttentionTile> tiles;
    std::int32_t pairs = 0;
    for (std::int64_t sample = 0; sample < rows.samples; ++sample) {
        const std::int32_t first = rows.host_offsets[sample];
        const std::int32_t length = rows.host_offsets[sample + 1] - first;
        for (std::int32_t begin = 0; begin < length;
             begin += static_cast<std::int32_t>(tile_rows)) {
            tiles.push_back({first, begin, length, pairs});
        }
        pairs += static_cast<std::int32_t>(kernels::attention_score_pairs(length));
    }
    const auto work = [order](const kernels::AttentionTile& tile) {
        return order == TileOrder::queries ? tile.begin : tile.length - tile.begin;
    };
    std::stable_sort(tiles.begin(), tiles.end(),
                     [&](const auto& left, const auto& right) { return work(left) > work(right); });
    return tiles;
}

void AttentionTiles::update(const PackedRows& rows, std::int64_t tile_rows, StagingRing& staging) {
    const std::int32_t* begin = rows.host_offsets;
    const std::int32_t* end = begin + (rows.samples == 0 ? 0 : rows.samples + 1);
    if (tile_rows == tile_rows_ && std::equal(begin, end, offsets_.begin(), offsets_.end())) return;
    const std::vector<kernels::AttentionTile> tiles = attention_tiles(rows, tile_rows, order_);
    const std::size_t bytes = tiles.size() * sizeof(kernels::AttentionTile);
    reserve(bytes);
    staging.upload(table_.data(), tiles.data(), bytes);
    count_ = static_cast<std::int32_t>(tiles.size());
    tile_rows_ = tile_rows;
    offsets_.assign(begin, end);
}

CudaAttention::CudaAttention(cudaStream_t stream, DType compute, int shared_limit, MemoryUse* use)
    : stream_(stream),
      compute_(compute),
      shared_limit_(shared_limit),
      staging_(stream, staging_sectors, staging_bytes, false),
      forward_tiles_(TileOrder::queries, use),
      query_tiles_(TileOrder::queries, use),
      key_tiles_(TileOrder::keys, use),
      row_stats_(use),
      scores_(use) {}

kernels::AttentionParams CudaAttention::params_of(const Attention& op) const {
    kernels::AttentionParams params{};
    params.q = matrix_of(op.q);
    params.k = matrix_of(op.k);
    params.v = matrix_of(op.v);
    params.o = matrix_of(op.o);
    params.lse = op.lse;
    params.heads = static_cast<std::int32_t>(op.q.cols / op.head_dim);
    params.kv_heads = static_cast<std::int32_t>(op.k.cols / op.head_dim);
    params.head_dim = static_cast<std::int32_t>(op.head_dim);
    params.scale = op.scale;
    params.shared_limit = shared_limit_;
    params.sliding_window = op.sliding_window > 0 && op.sliding_window < kernels::no_sliding_window
                                ? static_cast<std::int32_t>(op.sliding_window)
                                : kernels::no_sliding_window;
    params.soft_cap = op.soft_cap;
    params.sinks = op.sinks;
    return params;
}

kernels::AttentionBackwardParams CudaAttention::params_of(const AttentionBackward& op) const {
    kernels::AttentionBackwardParams params{};
    params.forward = params_of(op.forward);
    params.d_o = matrix_of(op.d_o);
    params.dq = matrix_of(op.dq);
    params.dk = matrix_of(op.dk);
    params.dv = matrix_of(op.dv);
    return params;
}

void CudaAttention::check_shapes(const Attention& op) const {
    LORATRAIN_CHECK(op.head_dim > 0 && op.head_dim <= kernels::attention_max_head_dim &&
                        op.k.cols > 0 && op.k.cols % op.head_dim == 0 &&
                        op.q.cols % op.k.cols == 0 && op.v.cols == op.k.cols &&
                        op.o.cols == op.q.cols,
                    "attention of ", op.q.cols, " query and ", op.k.cols,
                    " key columns with head_dim ", op.head_dim);
    const std::int64_t most = kernels::attention_most_head_dim(matrix_of(op.q).type, shared_limit_);
    LORATRAIN_CHECK(op.head_dim <= most, "attention in ", to_string(compute_), " with head_dim ",
                    op.head_dim, ", but this GPU's shared memory is enough for ", most);
    for (const TensorView* x : {&op.q, &op.k, &op.v, &op.o}) {
        LORATRAIN_CHECK(x->dtype == compute_, "attention on ", to_string(x->dtype));
    }
}

void CudaAttention::reserve(const ScratchSizes& sizes) {
    row_stats_.reserve(sizes.attention_rows, row_stats_name);
    if (kernels::runs_attention_hopper(shared_limit_)) {
        scores_.reserve(sizes.attention_scores, "gradients of attention's scores");
    }
    const std::array tables{&forward_tiles_, &query_tiles_, &key_tiles_};
    static_assert(tables.size() == device_memory::attention_tile_tables);
    for (AttentionTiles* tiles : tables) tiles->reserve(sizes.attention_tiles / tables.size());
}

void CudaAttention::forward(const Attention& op) {
    if (op.rows.tokens == 0) return;
    check_shapes(op);
    kernels::AttentionParams params = params_of(op);
    forward_tiles_.update(op.rows, kernels::attention_tile_rows(params).forward, staging_);
    params.tiles = forward_tiles_.data();
    params.tile_count = forward_tiles_.count();
    CUDA_CHECK(kernels::attention_forward(stream_, params));
}

void CudaAttention::backward(const AttentionBackward& op) {
    if (op.forward.rows.tokens == 0) return;
    check_shapes(op.forward);
    LORATRAIN_CHECK(op.d_o.cols == op.forward.q.cols && op.dq.cols == op.forward.q.cols &&
                        op.dk.cols == op.forward.k.cols && op.dv.cols == op.forward.k.cols,
                    "attention gradients of ", op.dq.cols, " and ", op.dk.cols, " columns");
    const PackedRows& rows = op.forward.rows;
    kernels::AttentionBackwardParams params = params_of(op);
    const kernels::AttentionTileRows tile_rows = kernels::attention_tile_rows(params);
    query_tiles_.update(rows, tile_rows.query, staging_);
    key_tiles_.update(rows, tile_rows.key, staging_);
    params.query_tiles = query_tiles_.data();
    params.query_tile_count = query_tiles_.count();
    params.key_tiles = key_tiles_.data();
    params.key_tile_count = key_tiles_.count();
    count_tile_pairs(rows, params);
    const auto stats = static_cast<std::size_t>(params.forward.q.rows * params.forward.heads);
    params.row_stats =
        static_cast<float2*>(row_stats_.reserve(stats * sizeof(float2), row_stats_name));
    params.scores = scores_.data();
    params.score_kv_heads =
        kv_heads_at_once(params.forward, params.tile_pairs * kernels::attention_score_pair_bytes,
                         static_cast<std::int64_t>(scores_.bytes()));
    CUDA_CHECK(kernels::attention_backward(stream_, params));
}

void CudaAttention::cached(const CachedAttention& op) const {
    check_shapes(op.of);
    CUDA_CHECK(
        kernels::cached_attention(stream_, {params_of(op.of), matrix_of(op.keys),
                                            matrix_of(op.values), op.first, op.of.rows.positions}));
}

void CudaBackend::attention(const Attention& op) {
    attention_->forward(op);
}

void CudaBackend::attention_backward(const AttentionBackward& op) {
    attention_->backward(op);
}

void CudaBackend::cached_attention(const CachedAttention& op) {
    attention_->cached(op);
}

}  // namespace loratrain
