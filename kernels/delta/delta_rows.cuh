#pragma once

#include "delta.h"

/// Which rows the chunks of the delta rule have. Blocks find their chunk themselves, without a
/// table.

namespace loratrain::kernels::delta {

constexpr int chunk_rows = delta_chunk;

/// Rows [first, first + rows) of a sample, rows <= chunk_rows; 0 rows: no chunk.
struct Chunk {
    std::int64_t first;
    int rows;
    bool begins;  ///< the sample's first chunk: the state before it is zero
    bool ends;    ///< the sample's last chunk
};

/// Number of chunk_of(): one for each sample's first chunk, then one for each other chunk that may
/// be, of which some are not.
inline std::int64_t most_chunks(const DeltaSamples& samples) {
    return samples.samples + delta_states(samples.tokens);
}

/// How many rows from `first` on, at most chunk_rows, are of its sample; asked by whole warps.
__device__ __forceinline__ int count_rows(const DeltaSamples& samples, std::int64_t first) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int32_t position = samples.positions[first];
    const auto belongs = [&](int row) {
        return first + row < samples.tokens && samples.positions[first + row] == position + row;
    };
    const unsigned low = __ballot_sync(0xffffffffU, belongs(lane));
    const unsigned high = __ballot_sync(0xffffffffU, belongs(32 + lane));
    return low == 0xffffffffU ? 32 + (high == 0xffffffffU ? 32 : __ffs(~high) - 1)
                              : __ffs(~low) - 1;
}

/// Chunk `index` of most_chunks(); asked by whole warps. Among chunk_rows rows from row x on there
/// begins at most one chunk that is not the first of its sample: of the sample of row x.
__device__ __forceinline__ Chunk chunk_of(const DeltaSamples& samples, std::int64_t index) {
    Chunk chunk{};
    if (index < samples.samples) {
        chunk.first = samples.offsets[index];
        chunk.begins = true;
        if (samples.offsets[index + 1] == chunk.first) return chunk;
    } else {
        const std::int64_t row = (index - samples.samples + 1) * chunk_rows;
        const std::int32_t position = samples.positions[row];
        const int ahead = (chunk_rows - position % chunk_rows) % chunk_rows;
        chunk.first = row + ahead;
        if (position == 0 || chunk.first >= samples.tokens ||
            samples.positions[chunk.first] != position + ahead) {
            return chunk;
        }
    }
    chunk.rows = count_rows(samples, chunk.first);
    const std::int64_t next = chunk.first + chunk_rows;
    chunk.ends = chunk.rows < chunk_rows || next >= samples.tokens ||
                 samples.positions[next] != samples.positions[chunk.first] + chunk_rows;
    return chunk;
}

}  // namespace loratrain::kernels::delta
