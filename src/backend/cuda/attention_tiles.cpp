#include "backend/cuda/attention_tiles.h"

#include <algorithm>

namespace loratrain {

static_assert(sizeof(kernels::AttentionTile) == kernels::attention_tile_bytes);

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

}  // namespace loratrain
