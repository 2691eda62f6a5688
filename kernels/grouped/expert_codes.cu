#include "grouped.h"
#include "kernels/quantize.cuh"

namespace loratrain::kernels {

namespace {

constexpr int coding_rows = 64;  ///< of a tile, that a block takes
constexpr int blocks_of_tile = expert_tile_rows / coding_rows;

struct ExpertCoding {
    Matrix x;
    const std::int32_t* x_rows;  ///< null: the place
    const float* column_scales;
    Fp8Codes to;
    const ExpertTile* tiles;
    const std::int32_t* tile_count;
};

/// A row for each `lanes` threads at a time (a warp or the whole block), which keep the scales of
/// their columns.
template <class T, int threads, int lanes, int passes>
__global__ void __launch_bounds__(threads) expert_codes_kernel(ExpertCoding op) {
    using Held = HeldRow<T, lanes, passes>;
    constexpr int at_once = threads / lanes;
    __shared__ std::uint32_t scratch[threads / 32];
    wait_for_kernel_before();
    const int number = static_cast<int>(blockIdx.x) / blocks_of_tile;
    if (number >= *op.tile_count) return;
    const ExpertTile tile = op.tiles[number];
    const int begin = tile.first + static_cast<int>(blockIdx.x) % blocks_of_tile * coding_rows;
    const int end = min(tile.end, begin + coding_rows);
    typename Held::Scales scales;
    scales.load(op.column_scales + std::int64_t{tile.expert} * op.x.cols, op.x.cols);
    for (int row = begin + static_cast<int>(threadIdx.x) / lanes; row < end; row += at_once) {
        const std::int64_t from = op.x_rows == nullptr ? row : op.x_rows[row];
        Held held;
#pragma unroll
        for (int pass = 0; pass < passes; ++pass) {
            const std::int64_t col = held.column(pass);
            if (col < op.x.cols) {
                held.take(pass, static_cast<const T*>(op.x.data) + from * op.x.ld + col);
            }
        }
        held.write_codes(op.x.cols, scales, op.to, row, scratch);
    }
}

template <class T, int lanes, int passes>
cudaError_t launch(cudaStream_t stream, const ExpertRows& rows, const ExpertCoding& op) {
    const std::int64_t tiles = most_expert_tiles(op.to.rows, rows.routes.experts);
    constexpr int threads = lanes > 32 ? lanes : block_threads;
    return launch_early(stream, expert_codes_kernel<T, threads, lanes, passes>,
                        static_cast<unsigned>(tiles * blocks_of_tile), threads, 0, op);
}

template <class T>
cudaError_t launch_columns(cudaStream_t stream, const ExpertRows& rows, const ExpertCoding& op) {
    constexpr std::int64_t of_warp = 32 * wide;
    constexpr std::int64_t of_block = block_threads * wide;
    static_assert(16 * of_block == expert_codes_columns);
    const std::int64_t columns = op.x.cols;
    if (columns <= 4 * of_warp) return launch<T, 32, 4>(stream, rows, op);
    if (columns <= 6 * of_warp) return launch<T, 32, 6>(stream, rows, op);
    if (columns <= 8 * of_warp) return launch<T, 32, 8>(stream, rows, op);
    if (columns <= 2 * of_block) return launch<T, block_threads, 2>(stream, rows, op);
    if (columns <= 4 * of_block) return launch<T, block_threads, 4>(stream, rows, op);
    if (columns <= 8 * of_block) return launch<T, block_threads, 8>(stream, rows, op);
    return launch<T, 2 * block_threads, 8>(stream, rows, op);
}

}  // namespace

cudaError_t quantize_expert_rows(cudaStream_t stream, const ExpertRows& rows, const Matrix& x,
                                 bool gathered, const float* column_scales, const Fp8Codes& to) {
    const std::int64_t copies = rows.routes.tokens * rows.routes.per_token;
    if (!all_wide({&x}) || !takes_wide_codes(to, column_scales) || to.rows != copies ||
        to.cols != x.cols || x.rows != (gathered ? rows.routes.tokens : copies) ||
        x.cols > expert_codes_columns) {
        return cudaErrorInvalidValue;
    }
    if (copies == 0 || x.cols == 0) return cudaSuccess;
    const ExpertCoding op{x,
                          gathered ? rows.routes.rows : nullptr,
                          column_scales,
                          to,
                          rows.tables.tiles,
                          rows.tables.counters};
    return with_type(
        x.type, [&](auto element) { return launch_columns<decltype(element)>(stream, rows, op); });
}

}  // namespace loratrain::kernels
