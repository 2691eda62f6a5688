#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace loratrain {

/// What a dataset's filters make of its chunks. HDF5 itself does not ask whether a chunk has its
/// size after they are undone and reads beyond its memory where it has not.
class ChunkFilters {
  public:
    /// Of a dataset's creation properties.
    explicit ChunkFilters(hid_t properties);

    /// Why chunks cannot be read: a filter other than shuffle, fletcher32 and deflate (gzip), one
    /// that this HDF5 lacks, or deflate twice; "" = they can.
    const std::string& problem() const { return problem_; }

    bool empty() const { return filters_.empty(); }

    /// Whether a stored chunk's size depends on what it holds.
    bool compress() const { return compress_; }

    /// Bytes that the filters add to a chunk without compression.
    std::uint64_t added_bytes() const { return added_; }

    /// Bytes of a chunk whose filters are undone; none where they cannot be or would give more than
    /// `most`. Bit i of `skipped`: it was stored without filter i.
    std::optional<std::uint64_t> undone_bytes(std::span<const std::byte> stored,
                                              std::uint32_t skipped, std::uint64_t most) const;

  private:
    std::vector<H5Z_filter_t> filters_;
    std::string problem_;
    bool compress_ = false;
    std::uint64_t added_ = 0;
};

}  // namespace loratrain
