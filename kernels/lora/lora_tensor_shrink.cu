#include <algorithm>

#include "kernels/launch.cuh"
#include "lora_shrink_tile.cuh"

namespace loratrain::kernels {

namespace {

using namespace shrink;

/// One tile of at most `rows` rows and `strip_count` strips; the warps share the columns of X.
/// Blocks of the same rows are neighbours, which find them in the L2.
template <int rows, int strip_count, int chunks, bool with_dropout>
__global__ void __launch_bounds__(threads, 1)
    shrink_kernel(LoraShrinkParams p, std::int64_t copy_ld) {
    extern __shared__ uint4 staging[];
    __shared__ Strip strips[strip_count];
    __shared__ DropoutRows<rows> dropout_rows;
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) {
        if (blockIdx.x == 0) clear_other_columns<rows>(p, tile);
        return;
    }
    if (threadIdx.x < strip_count) {
        strips[threadIdx.x] = find_strip(p.tables, tile.slot,
                                         static_cast<int>(blockIdx.x * strip_count + threadIdx.x));
    }
    __syncthreads();
    if (with_dropout) stage_dropout_rows<rows, strip_count>(p.tables, tile, strips, dropout_rows);
    if (strips[0].target < 0) {
        if (blockIdx.x == 0) clear_other_columns<rows>(p, tile);
        return;
    }

    using Feed = Feeder<rows, strip_count, chunks>;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    Feed feeder;
    feeder.staging = staging + warp * Feed::stages * Feed::stage_pieces;
    feeder.x = static_cast<const Bf16*>(p.x.data) + tile.begin * p.x.ld;
    feeder.ld = p.x.ld;
    feeder.columns = static_cast<int>(p.x.cols);
    feeder.valid_rows = tile.end - tile.begin;
    feeder.factor_ld = copy_ld;
#pragma unroll
    for (int i = 0; i < strip_count; ++i) {
        feeder.factors[i] = strips[i].target < 0
                                ? nullptr
                                : static_cast<const Bf16*>(p.copies) + strips[i].copy_row * copy_ld;
    }

    const int lines = static_cast<int>(copy_ld) / line_columns;
    Sums<rows, strip_count> sums = {};
#pragma unroll
    for (int i = 0; i < Feed::stages; ++i) {
        const int line = warp + i / Feed::parts * warps;
        if (line < lines) feeder.fetch(i, line, i % Feed::parts);
        commit_pieces();
    }
    if (blockIdx.x == 0) clear_other_columns<rows>(p, tile);
    const std::uint32_t step = with_dropout ? p.tables.segments[tile.segment].step : 0;
    int stage = 0;
    for (int line = warp; line < lines; line += warps) {
#pragma unroll
        for (int part = 0; part < Feed::parts; ++part) {
            const int first_eight =
                p.tables.first_dropout_block + line * line_pieces + part * Feed::pieces;
            wait_for_pieces<Feed::stages - 1>();
            __syncwarp();
            if constexpr (with_dropout) {
#pragma unroll 1
                for (int chunk = 0; chunk < chunks; ++chunk) {
                    add_kept_chunk<rows, strip_count, chunks>(
                        feeder, stage, chunk, strips, dropout_rows, step, first_eight, sums);
                }
            } else {
#pragma unroll
                for (int chunk = 0; chunk < chunks; ++chunk) {
                    add_chunk<rows, strip_count, chunks>(feeder, stage, chunk, sums);
                }
            }
            __syncwarp();
            const int next = line + Feed::stages / Feed::parts * warps;
            if (next < lines) feeder.fetch(stage, next, part);
            commit_pieces();
            stage = (stage + 1) % Feed::stages;
        }
    }
    wait_for_pieces<0>();
    __syncthreads();
    write_sums<rows, strip_count>(p, tile, strips, sums, reinterpret_cast<float*>(staging));
}

/// A in bf16, rows and columns padded with zeros.
__global__ void __launch_bounds__(threads)
    copy_factors(LoraTables tables, Bf16* copies, std::int64_t ld, std::int64_t k) {
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraSlotEntry& slot = tables.slots[blockIdx.z];
    const std::int64_t padded =
        (slot.rank + lora_copy_row_multiple - 1) / lora_copy_row_multiple * lora_copy_row_multiple;
    const std::int64_t row = blockIdx.y;
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x) * 4;
    if (row >= padded || column >= ld) return;
    Bf16* target = copies + (slot.copy_row + row) * ld + column;
    const float* source = slot.a + row * k + column;
    float v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = row < slot.rank && column + i < k ? source[i] : 0.0F;
    *reinterpret_cast<uint2*>(target) =
        make_uint2(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]));
}

template <int rows, int strip_count, int chunks>
struct Shared {
    static constexpr int reduction = warps * rows * strip_count * strip_columns * 4;
    static constexpr int dynamic = std::max(Feeder<rows, strip_count, chunks>::bytes, reduction);
    static constexpr int all =
        dynamic + static_cast<int>(strip_count * sizeof(Strip) + sizeof(DropoutRows<rows>));
};

template <int rows, int strip_count, int chunks, bool with_dropout>
cudaError_t launch(cudaStream_t stream, const LoraShrinkParams& p, int strips) {
    const auto kernel = shrink_kernel<rows, strip_count, chunks, with_dropout>;
    constexpr int shared = Shared<rows, strip_count, chunks>::dynamic;
    static const cudaError_t raised =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (raised != cudaSuccess) return raised;
    const dim3 grid(static_cast<unsigned>(std::max(1, (strips + strip_count - 1) / strip_count)),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_early(stream, kernel, grid, threads, shared, p, lora_copy_ld(p.x.cols));
}

/// Whole lines where they fit, else chunks of as many strips, else of fewer, which read X again.
template <int strip_count, bool with_dropout>
cudaError_t launch_many(cudaStream_t stream, const LoraShrinkParams& p, int strips) {
    constexpr int fewer = std::min(strip_count, 4);
    static_assert(Shared<many_rows, strip_count, 2>::all <= most_shared_bytes);
    static_assert(Shared<many_rows, fewer, 1>::all <= least_shared_bytes);
    if (Shared<many_rows, strip_count, 2>::all <= p.shared_limit) {
        return launch<many_rows, strip_count, 2, with_dropout>(stream, p, strips);
    }
    if (Shared<many_rows, strip_count, 1>::all <= p.shared_limit) {
        return launch<many_rows, strip_count, 1, with_dropout>(stream, p, strips);
    }
    return launch<many_rows, fewer, 1, with_dropout>(stream, p, strips);
}

template <int strip_count, bool with_dropout>
cudaError_t launch_few(cudaStream_t stream, const LoraShrinkParams& p, int strips) {
    static_assert(Shared<few_rows, 2, 2>::all <= least_shared_bytes);
    return Shared<few_rows, strip_count, 2>::all <= p.shared_limit
               ? launch<few_rows, strip_count, 2, with_dropout>(stream, p, strips)
               : launch<few_rows, 2, 2, with_dropout>(stream, p, strips);
}

template <int strip_count, bool with_dropout>
cudaError_t launch_for(cudaStream_t stream, const LoraShrinkParams& p, int strips) {
    return p.tile_rows == few_rows ? launch_few<strip_count, with_dropout>(stream, p, strips)
                                   : launch_many<strip_count, with_dropout>(stream, p, strips);
}

template <bool with_dropout>
cudaError_t launch_for(cudaStream_t stream, const LoraShrinkParams& p, int strips) {
    if (strips <= 2) return launch_for<2, with_dropout>(stream, p, strips);
    if (strips <= 4) return launch_for<4, with_dropout>(stream, p, strips);
    return launch_for<6, with_dropout>(stream, p, strips);
}

}  // namespace

std::int32_t lora_tensor_shrink_rows(std::int64_t rows, int processors) {
    return rows <= many_rows * processors / 2 ? few_rows : many_rows;
}

bool lora_tensor_fits(const Matrix& x) {
    return x.type == Element::bf16 && rows_aligned(x);
}

cudaError_t lora_shrink_tensor(cudaStream_t stream, const LoraShrinkParams& p) {
    if (p.tables.tile_count == 0 || p.tables.target_count == 0) return cudaSuccess;
    const std::int64_t ld = lora_copy_ld(p.x.cols);
    if (p.copy_rows > 0) {
        const dim3 grid(static_cast<unsigned>((ld / 4 + threads - 1) / threads),
                        static_cast<unsigned>((p.tables.largest_rank + strip_columns - 1) /
                                              strip_columns * strip_columns),
                        static_cast<unsigned>(p.tables.target_count * p.tables.slot_count));
        const cudaError_t status = launch_early(stream, copy_factors, grid, threads, 0, p.tables,
                                                static_cast<Bf16*>(p.copies), ld, p.x.cols);
        if (status != cudaSuccess) return status;
    }
    const int strips = p.tables.largest_rank_sum / strip_columns;
    return p.tables.dropout ? launch_for<true>(stream, p, strips)
                            : launch_for<false>(stream, p, strips);
}

}  // namespace loratrain::kernels
