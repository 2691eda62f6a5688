#include "kernels/dropout.cuh"
#include "kernels/launch.cuh"
#include "lora_launch.h"

namespace loratrain::kernels {

namespace {

constexpr int tile_rows = lora_plain_rows;
constexpr int tile_ranks = 16;
constexpr int tile_depth = 32;  ///< of the summed dimension
constexpr int tile_cols = 64;

struct Operands {
    Matrix x;
    Matrix s[max_lora_targets];
    LoraTables tables;
    bool of_a;  ///< the factor is A [rank, cols]; otherwise B [cols, rank], without dropout
    bool accumulate;
    const void* weight;  ///< LoraGradAParams's, else null
    float weight_offset;
};

/// Strides of a factor or its gradient, seen as [rank, cols].
struct FactorStrides {
    std::int64_t rank;
    std::int64_t col;
};

__device__ __forceinline__ FactorStrides strides_of(const Operands& op, const LoraSlotEntry& slot) {
    return op.of_a ? FactorStrides{op.x.cols, 1} : FactorStrides{1, slot.rank};
}

/// 0 or 1/(1-p): what dropout multiplies the element (row, col) with.
__device__ __forceinline__ float dropout_factor(const Operands& op, const LoraSlotEntry& slot,
                                                std::uint32_t step, std::int64_t row,
                                                std::int64_t col) {
    if (!op.of_a || slot.dropout == 0) return 1.0F;
    const uint4 bits = dropout_bits(
        slot.dropout_key,
        dropout_row(slot.dropout_key, static_cast<std::uint32_t>(op.tables.sample_ids[row]),
                    static_cast<std::uint32_t>(op.tables.positions[row])),
        dropout_column(slot.dropout_key, step,
                       static_cast<std::uint32_t>(op.tables.first_dropout_block + col / 8)));
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
    std::uint32_t word = words[0];
#pragma unroll
    for (int w = 1; w < 4; ++w) word = col % 8 / 2 == w ? words[w] : word;
    const std::uint32_t random = (col % 2 == 0 ? word : word >> 16U) & 0x7fffU;
    return random < slot.dropout ? 0.0F : dropout_scale(slot.dropout);
}

template <class T>
__device__ __forceinline__ float x_value(const Operands& op, std::int64_t row, std::int64_t col,
                                         std::int64_t end) {
    if (row >= end || col >= op.x.cols) return 0.0F;
    return to_float(static_cast<const T*>(op.x.data)[row * op.x.ld + col]);
}

template <class T>
__device__ __forceinline__ T* s_at(const Matrix& s, std::int64_t row, std::int64_t col) {
    return static_cast<T*>(s.data) + row * s.ld + col;
}

/// S[t, r] = scale * sum over cols of drop(x[t, col]) factor[r, col]; one tile, 16 ranks.
template <class T>
__global__ void __launch_bounds__(block_threads) project_kernel(Operands op) {
    __shared__ float xs[tile_rows][tile_depth + 1];
    __shared__ float fs[tile_ranks][tile_depth + 1];
    const LoraTile tile = op.tables.tiles[blockIdx.x];
    if (tile.segment < 0) return;
    const LoraSegmentEntry segment = op.tables.segments[tile.segment];
    const unsigned target = blockIdx.z;
    const LoraSlotEntry slot = op.tables.slots[target * op.tables.slot_count + segment.slot];
    const int first_rank = static_cast<int>(blockIdx.y) * tile_ranks;
    if (first_rank >= slot.rank) return;
    const float* factor = op.of_a ? slot.a : slot.b;
    const FactorStrides strides = strides_of(op, slot);
    const int rank = static_cast<int>(threadIdx.x) % tile_ranks;
    const int row = static_cast<int>(threadIdx.x) / tile_ranks;
    constexpr int rows_apart = block_threads / tile_ranks;
    float sums[tile_rows / rows_apart] = {};
    for (std::int64_t first = 0; first < op.x.cols; first += tile_depth) {
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < tile_rows * tile_depth;
             i += block_threads) {
            const std::int64_t t = tile.begin + i / tile_depth;
            const std::int64_t col = first + i % tile_depth;
            const float x = x_value<T>(op, t, col, tile.end);
            xs[i / tile_depth][i % tile_depth] =
                x == 0.0F ? x : x * dropout_factor(op, slot, segment.step, t, col);
        }
        for (int i = static_cast<int>(threadIdx.x); i < tile_ranks * tile_depth;
             i += block_threads) {
            const int r = first_rank + i / tile_depth;
            const std::int64_t col = first + i % tile_depth;
            fs[i / tile_depth][i % tile_depth] = r < slot.rank && col < op.x.cols
                                                     ? factor[r * strides.rank + col * strides.col]
                                                     : 0.0F;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < tile_rows / rows_apart; ++i) {
            float piece = 0.0F;
#pragma unroll 8
            for (int j = 0; j < tile_depth; ++j) {
                piece += xs[row + i * rows_apart][j] * fs[rank][j];
            }
            sums[i] += piece;
        }
    }
    if (first_rank + rank >= slot.rank) return;
#pragma unroll
    for (int i = 0; i < tile_rows / rows_apart; ++i) {
        const std::int64_t t = tile.begin + row + i * rows_apart;
        if (t >= tile.end) continue;
        *s_at<T>(op.s[target], t, slot.column + first_rank + rank) =
            from_float<T>(slot.scale * sums[i]);
    }
}

/// gradient[r, col] += sum over the slot's rows of S[t, r] drop(x[t, col]); 16 ranks, 64 columns.
/// Summed in pieces: one long fp32 sum over a batch's tokens would round more than all else does.
template <class T>
__global__ void __launch_bounds__(block_threads) gradient_kernel(Operands op) {
    __shared__ float ss[tile_depth][tile_ranks];
    __shared__ float xs[tile_depth][tile_cols];
    const unsigned target = blockIdx.z / op.tables.slot_count;
    const auto slot_index = static_cast<std::int32_t>(blockIdx.z % op.tables.slot_count);
    const LoraSlotEntry slot = op.tables.slots[blockIdx.z];
    const int first_rank = static_cast<int>(blockIdx.y) * tile_ranks;
    if (first_rank >= slot.rank) return;
    const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x) * tile_cols;
    const int rank = static_cast<int>(threadIdx.x) / tile_ranks;
    const int lane = static_cast<int>(threadIdx.x) % tile_ranks;
    float sums[tile_cols / tile_ranks] = {};
    bool has_rows = false;
    for (int g = 0; g < op.tables.segment_count; ++g) {
        const LoraSegmentEntry segment = op.tables.segments[g];
        if (segment.slot != slot_index) continue;
        has_rows = has_rows || segment.begin < segment.end;
        for (std::int64_t begin = segment.begin; begin < segment.end; begin += tile_depth) {
            __syncthreads();
            for (int i = static_cast<int>(threadIdx.x); i < tile_depth * tile_cols;
                 i += block_threads) {
                const std::int64_t t = begin + i / tile_cols;
                const std::int64_t col = first_col + i % tile_cols;
                const float x = x_value<T>(op, t, col, segment.end);
                xs[i / tile_cols][i % tile_cols] =
                    x == 0.0F ? x : x * dropout_factor(op, slot, segment.step, t, col);
            }
            for (int i = static_cast<int>(threadIdx.x); i < tile_depth * tile_ranks;
                 i += block_threads) {
                const std::int64_t t = begin + i / tile_ranks;
                const int r = first_rank + i % tile_ranks;
                ss[i / tile_ranks][i % tile_ranks] =
                    t < segment.end && r < slot.rank
                        ? to_float(*s_at<const T>(op.s[target], t, slot.column + r))
                        : 0.0F;
            }
            __syncthreads();
            float part[tile_cols / tile_ranks] = {};
#pragma unroll 8
            for (int t = 0; t < tile_depth; ++t) {
#pragma unroll
                for (int j = 0; j < tile_cols / tile_ranks; ++j) {
                    part[j] += ss[t][rank] * xs[t][lane + j * tile_ranks];
                }
            }
#pragma unroll
            for (int j = 0; j < tile_cols / tile_ranks; ++j) sums[j] += part[j];
        }
    }
    if (!has_rows || first_rank + rank >= slot.rank) return;
    float* gradient = op.of_a ? slot.grad_a : slot.grad_b;
    const FactorStrides strides = strides_of(op, slot);
#pragma unroll
    for (int j = 0; j < tile_cols / tile_ranks; ++j) {
        const std::int64_t col = first_col + lane + j * tile_ranks;
        if (col >= op.x.cols) continue;
        float* target = gradient + (first_rank + rank) * strides.rank + col * strides.col;
        if (op.weight != nullptr) {
            sums[j] *= to_float(static_cast<const T*>(op.weight)[col]) + op.weight_offset;
        }
        *target = (slot.begins != 0 ? 0.0F : *target) + sums[j];
    }
}

/// y[t, col] (+)= sum over targets of drop'(sum over r of S[t, r] factor[r, col]); one tile, 64
/// columns.
template <class T>
__global__ void __launch_bounds__(block_threads) expand_kernel(Operands op) {
    __shared__ float ss[tile_rows][tile_ranks];
    __shared__ float fs[tile_ranks][tile_cols];
    const LoraTile tile = op.tables.tiles[blockIdx.x];
    if (tile.segment < 0 && op.accumulate) return;
    const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.y) * tile_cols;
    const int col = static_cast<int>(threadIdx.x) % tile_cols;
    const int row = static_cast<int>(threadIdx.x) / tile_cols;
    constexpr int rows_apart = block_threads / tile_cols;
    float totals[tile_rows / rows_apart] = {};
    const LoraSegmentEntry segment =
        tile.segment < 0 ? LoraSegmentEntry{} : op.tables.segments[tile.segment];
    for (int target = 0; target < op.tables.target_count && tile.segment >= 0; ++target) {
        const LoraSlotEntry slot = op.tables.slots[target * op.tables.slot_count + segment.slot];
        const float* factor = op.of_a ? slot.a : slot.b;
        const FactorStrides strides = strides_of(op, slot);
        float sums[tile_rows / rows_apart] = {};
        for (int first = 0; first < slot.rank; first += tile_ranks) {
            __syncthreads();
            for (int i = static_cast<int>(threadIdx.x); i < tile_rows * tile_ranks;
                 i += block_threads) {
                const std::int64_t t = tile.begin + i / tile_ranks;
                const int r = first + i % tile_ranks;
                ss[i / tile_ranks][i % tile_ranks] =
                    t < tile.end && r < slot.rank
                        ? to_float(*s_at<const T>(op.s[target], t, slot.column + r))
                        : 0.0F;
            }
            for (int i = static_cast<int>(threadIdx.x); i < tile_ranks * tile_cols;
                 i += block_threads) {
                const int r = first + (op.of_a ? i / tile_cols : i % tile_ranks);
                const int c = op.of_a ? i % tile_cols : i / tile_ranks;
                fs[r - first][c] = r < slot.rank && first_col + c < op.x.cols
                                       ? factor[r * strides.rank + (first_col + c) * strides.col]
                                       : 0.0F;
            }
            __syncthreads();
#pragma unroll
            for (int i = 0; i < tile_rows / rows_apart; ++i) {
#pragma unroll
                for (int r = 0; r < tile_ranks; ++r) {
                    sums[i] += ss[row + i * rows_apart][r] * fs[r][col];
                }
            }
        }
        if (slot.rank == 0 || first_col + col >= op.x.cols) continue;
#pragma unroll
        for (int i = 0; i < tile_rows / rows_apart; ++i) {
            const std::int64_t t = tile.begin + row + i * rows_apart;
            if (t >= tile.end) continue;
            const float kept = dropout_factor(op, slot, segment.step, t, first_col + col);
            totals[i] += kept == 0.0F ? 0.0F : sums[i] * kept;
        }
    }
    if (first_col + col >= op.x.cols) return;
#pragma unroll
    for (int i = 0; i < tile_rows / rows_apart; ++i) {
        const std::int64_t t = tile.begin + row + i * rows_apart;
        if (t >= tile.end) continue;
        T* y = s_at<T>(op.x, t, first_col + col);
        *y = from_float<T>(op.accumulate ? to_float(*y) + totals[i] : totals[i]);
    }
}

Operands operands(const Matrix& x, const LoraTables& tables, bool of_a, const Matrix* s) {
    Operands op{};
    op.x = x;
    op.tables = tables;
    op.of_a = of_a;
    for (int i = 0; i < tables.target_count; ++i) op.s[i] = s[i];
    return op;
}

cudaError_t clear(cudaStream_t stream, const Matrix& x) {
    if (x.rows == 0 || x.cols == 0) return cudaSuccess;
    const std::size_t size = x.type == Element::f32 ? 4 : 2;
    return cudaMemset2DAsync(x.data, static_cast<std::size_t>(x.ld) * size, 0,
                             static_cast<std::size_t>(x.cols) * size,
                             static_cast<std::size_t>(x.rows), stream);
}

cudaError_t project(cudaStream_t stream, const Operands& op) {
    for (int i = 0; i < op.tables.target_count; ++i) {
        const cudaError_t status = clear(stream, op.s[i]);
        if (status != cudaSuccess) return status;
    }
    const dim3 grid(static_cast<unsigned>(op.tables.tile_count),
                    pieces(op.tables.largest_rank, tile_ranks),
                    static_cast<unsigned>(op.tables.target_count));
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
    return with_type(op.x.type, [&](auto element) {
        project_kernel<decltype(element)><<<grid, block_threads, 0, stream>>>(op);
        return cudaGetLastError();
    });
}

cudaError_t add_gradient(cudaStream_t stream, const Operands& op) {
    const dim3 grid(pieces(op.x.cols, tile_cols), pieces(op.tables.largest_rank, tile_ranks),
                    static_cast<unsigned>(op.tables.target_count * op.tables.slot_count));
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return cudaSuccess;
    return with_type(op.x.type, [&](auto element) {
        gradient_kernel<decltype(element)><<<grid, block_threads, 0, stream>>>(op);
        return cudaGetLastError();
    });
}

}  // namespace

cudaError_t lora_shrink_plain(cudaStream_t stream, const LoraShrinkParams& p) {
    return project(stream, operands(p.x, p.tables, true, p.s));
}

cudaError_t lora_backward_plain(cudaStream_t stream, const LoraBackwardParams& p) {
    const cudaError_t status = project(stream, operands(p.dy, p.tables, false, p.ds));
    if (status != cudaSuccess) return status;
    return add_gradient(stream, operands(p.dy, p.tables, false, p.s));
}

cudaError_t lora_grad_a_plain(cudaStream_t stream, const LoraGradAParams& p) {
    Operands op = operands(p.x, p.tables, true, p.ds);
    op.weight = p.weight;
    op.weight_offset = p.weight_offset;
    return add_gradient(stream, op);
}

cudaError_t lora_expand_plain(cudaStream_t stream, const LoraExpandParams& p) {
    Operands op = operands(p.y, p.tables, p.of_a, p.s);
    op.accumulate = p.accumulate;
    const dim3 grid(static_cast<unsigned>(p.tables.tile_count), pieces(p.y.cols, tile_cols));
    if (grid.x == 0 || grid.y == 0) return cudaSuccess;
    return with_type(p.y.type, [&](auto element) {
        expand_kernel<decltype(element)><<<grid, block_threads, 0, stream>>>(op);
        return cudaGetLastError();
    });
}

}  // namespace loratrain::kernels
