#pragma once

#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/growing_memory.h"
#include "backend/cuda/staging_ring.h"
#include "kernels/attention.h"

namespace loratrain {

enum class TileOrder : std::uint8_t {
    queries,  ///< a tile's work grows with its position in the sample (the keys it sees)
    keys,     ///< its work shrinks with its position (the queries that see it)
};

/// The tiles of all samples, most work first, no tile for rows that do not exist.
std::vector<kernels::AttentionTile> attention_tiles(const PackedRows& rows, std::int64_t tile_rows,
                                                    TileOrder order);

/// The same in device memory, made anew only when the samples change.
class AttentionTiles {
  public:
    explicit AttentionTiles(TileOrder order, MemoryUse* use = nullptr)
        : order_(order), table_(use) {}

    void reserve(std::size_t bytes) {
        tile_rows_ = 0;
        table_.reserve(bytes, "attention tiles");
    }
    void update(const PackedRows& rows, std::int64_t tile_rows, StagingRing& staging);
    const kernels::AttentionTile* data() const {
        return static_cast<const kernels::AttentionTile*>(table_.data());
    }
    std::int32_t count() const { return count_; }

  private:
    TileOrder order_;
    GrowingMemory table_;
    std::vector<std::int32_t> offsets_;
    std::int64_t tile_rows_ = 0;  ///< 0: table_ is not filled
    std::int32_t count_ = 0;
};

}  // namespace loratrain
