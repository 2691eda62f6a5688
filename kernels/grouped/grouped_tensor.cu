#include <type_traits>

#include "grouped_finish.cuh"
#include "kernels/attention_tile.cuh"
#include "kernels/tensor_core.cuh"

/// Products of the rows of experts by mma.sync, for GPUs before Hopper: a block makes 256 sums of
/// 64 rows of a tile, each warp 32 of them, from two stages of 64 columns of what is summed over.
/// Stages lie as ldmatrix reads them without two of 8 lanes in a bank: 16-byte pieces of a row of
/// 64 columns xor-ed with the row's last bits.

namespace loratrain::kernels {

namespace grouped {

namespace {

constexpr int tensor_threads = 256;
constexpr int tensor_warps = tensor_threads / 32;
constexpr int step_depth = 64;
using Step = Tile<step_depth>;
constexpr int row_bytes = Step::row_bytes;
constexpr int pieces_of_row = Step::chunks;
constexpr int rows_bytes = staged_rows * row_bytes;
constexpr int weights_panel = step_depth * row_bytes;
constexpr int weights_bytes = product_columns * row_bytes;
constexpr int stage_bytes = rows_bytes + weights_bytes;
constexpr int tensor_shared = 2 * stage_bytes;
constexpr int warp_columns = product_columns / tensor_warps;
static_assert(staged_bytes <= tensor_shared && tensor_shared <= least_shared_bytes);

/// Rows of one block's work: `first` < 0: there are none.
struct TensorWork {
    int first;
    int end;
    int column_tile;
};

/// What a step multiplies: 64 columns of rows and of weights, from `first` on.
struct TensorStep {
    const Matrix& a;
    const Bf16* w;  ///< of the expert
    int first;
    int depth;  ///< number of columns of `a`
    bool is_gathered;
};

/// Step `step` of a tile: of the product's `steps`, then with `adds` of what is added.
template <bool gathered, bool adds>
__device__ __forceinline__ TensorStep step_of(const ExpertProduct& p, int expert,
                                              const AddedColumns& added, int step, int steps) {
    if (!adds || step < steps) {
        const Bf16* w = static_cast<const Bf16*>(p.w) + expert * p.outputs * p.inputs;
        return {p.a, w, step * step_depth, p.depth, gathered};
    }
    const auto columns = static_cast<int>(p.added.s.cols);
    const std::int64_t others = p.backward ? p.inputs : p.outputs;
    const Bf16* factors = static_cast<const Bf16*>(p.added.factors) + expert * columns * others;
    return {p.added.s, factors, added.begin + (step - steps) * step_depth, columns, false};
}

/// Which output of the gate and up, or of all outputs, sum `column` of a tile is; -1: none.
template <class Finish>
__device__ __forceinline__ int output_of(const ExpertProduct& p, int column_tile, int column) {
    if constexpr (Finish::finish == ExpertFinish::gate) {
        const int at = column_tile * gate_columns + column % gate_columns;
        return at < p.columns ? at + column / gate_columns * p.columns : -1;
    } else {
        const int at = column_tile * product_columns + column;
        return at < p.columns ? at : -1;
    }
}

__device__ __forceinline__ void copy_rows(const ExpertProduct& p, const TensorWork& work,
                                          const TensorStep& step, std::uint32_t to) {
    const int thread = static_cast<int>(threadIdx.x);
    const int piece = thread % pieces_of_row;
    const int depth = step.first + piece * wide;
#pragma unroll
    for (int i = 0; i < staged_rows * pieces_of_row / tensor_threads; ++i) {
        const int row = thread / pieces_of_row + i * (tensor_threads / pieces_of_row);
        const bool inside = work.first + row < work.end && depth < step.depth;
        std::int64_t source = 0;
        if (inside) source = step.is_gathered ? p.a_rows[work.first + row] : work.first + row;
        copy_16_async(to + Step::offset(row, piece), place(step.a, source, inside ? depth : 0),
                      inside ? 16 : 0);
    }
}

template <class Finish, bool backward>
__device__ __forceinline__ void copy_weights(const ExpertProduct& p, const TensorWork& work,
                                             const TensorStep& step, std::uint32_t to) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < product_columns * pieces_of_row / tensor_threads; ++i) {
        const int at = thread + i * tensor_threads;
        const int piece = at % pieces_of_row;
        const Bf16* from = step.w;
        bool inside = false;
        std::uint32_t target = 0;
        if constexpr (backward) {
            const int row = at / pieces_of_row % step_depth;
            const int panel = at / pieces_of_row / step_depth;
            const int depth = step.first + row;
            const int column =
                work.column_tile * product_columns + panel * step_depth + piece * wide;
            inside = depth < step.depth && column < p.columns;
            if (inside) from += depth * p.inputs + column;
            target = panel * weights_panel + Step::offset(row, piece);
        } else {
            const int row = at / pieces_of_row;
            const int depth = step.first + piece * wide;
            const int output = output_of<Finish>(p, work.column_tile, row);
            inside = depth < step.depth && output >= 0;
            if (inside) from += std::int64_t{output} * step.depth + depth;
            target = Step::offset(row, piece);
        }
        copy_16_async(to + target, from, inside ? 16 : 0);
    }
}

constexpr int row_fragments = staged_rows / 16;
constexpr int column_fragments = warp_columns / 8;
using WarpSums = float[row_fragments][column_fragments][4];

/// A stage's products: 64 rows, the warp's 32 columns.
template <bool backward>
__device__ __forceinline__ void add_products(WarpSums& sums, std::uint32_t stage, int warp,
                                             int lane) {
    const std::uint32_t weights = stage + rows_bytes;
#pragma unroll
    for (int k = 0; k < step_depth / 16; ++k) {
        std::uint32_t b[column_fragments / 2][4];
#pragma unroll
        for (int j = 0; j < column_fragments / 2; ++j) {
            const int column = warp * warp_columns + j * 16;
            if constexpr (backward) {
                load_fragments_transposed(
                    b[j],
                    weights + column / step_depth * weights_panel +
                        Step::offset(k * 16 + lane % 16, column % step_depth / 8 + lane / 16));
            } else {
                load_fragments(b[j], weights + Step::offset(column + lane / 16 * 8 + lane % 8,
                                                            2 * k + lane / 8 % 2));
            }
        }
#pragma unroll
        for (int i = 0; i < row_fragments; ++i) {
            std::uint32_t a[4];
            load_fragments(a, stage + Step::offset(i * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int j = 0; j < column_fragments; ++j) {
                multiply_add(sums[i][j], a[0], a[1], a[2], a[3], b[j / 2][j % 2 * 2],
                             b[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

/// Adds the bias of the expert's outputs to the warp's 32 columns.
template <class Finish>
__device__ __forceinline__ void add_bias(WarpSums& sums, const ExpertProduct& p, int expert,
                                         int column_tile, int warp, int lane) {
    const float* of_expert = p.bias + expert * p.outputs;
#pragma unroll
    for (int j = 0; j < column_fragments; ++j) {
        const int first =
            output_of<Finish>(p, column_tile, warp * warp_columns + j * 8 + lane % 4 * 2);
        if (first < 0) continue;
        const float2 bias = *reinterpret_cast<const float2*>(of_expert + first);
#pragma unroll
        for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                sums[i][j][2 * half] += bias.x;
                sums[i][j][2 * half + 1] += bias.y;
            }
        }
    }
}

__device__ __forceinline__ void stage_sums(const WarpSums& sums, std::uint32_t to, int warp,
                                           int lane) {
#pragma unroll
    for (int i = 0; i < row_fragments; ++i) {
#pragma unroll
        for (int j = 0; j < column_fragments; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = i * 16 + half * 8 + lane / 4;
                const int column = warp * warp_columns + j * 8 + lane % 4 * 2;
                asm volatile(
                    "st.shared.b32 [%0], %1;\n" ::"r"(to + row * staged_pitch + column * 2),
                    "r"(pack_halves(sums[i][j][2 * half], sums[i][j][2 * half + 1]))
                    : "memory");
            }
        }
    }
}

/// Block: a column tile of half a tile.
template <class Finish, bool gathered, bool backward, bool adds>
__global__ void __launch_bounds__(tensor_threads)
    product_kernel(const __grid_constant__ ExpertProduct p, int column_tiles) {
    extern __shared__ __align__(128) char memory[];
    wait_for_kernel_before();
    const std::uint32_t shared = shared_address(memory);
    const int half = static_cast<int>(blockIdx.x) / column_tiles;
    if (half / 2 >= *p.tile_count) return;
    const ExpertTile tile = p.tiles[half / 2];
    const TensorWork work{tile.first + half % 2 * staged_rows, tile.end,
                          static_cast<int>(blockIdx.x) % column_tiles};
    if (work.first >= work.end) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const AddedColumns added = AddedColumns::of(adds ? tile.added : 0);
    const int own_steps = (p.depth + step_depth - 1) / step_depth;
    const int steps = own_steps + added.steps;
    const auto copy = [&](int number) {
        const std::uint32_t to = shared + number % 2 * stage_bytes;
        if (number < steps) {
            const TensorStep step =
                step_of<gathered, adds>(p, tile.expert, added, number, own_steps);
            copy_rows(p, work, step, to);
            copy_weights<Finish, backward>(p, work, step, to + rows_bytes);
        }
        commit_pieces();
    };
    WarpSums sums = {};
    copy(0);
    for (int step = 0; step < steps; ++step) {
        copy(step + 1);
        wait_for_pieces<1>();
        __syncthreads();
        add_products<backward>(sums, shared + step % 2 * stage_bytes, warp, lane);
        __syncthreads();
    }
    if constexpr (Finish::biased) {
        add_bias<Finish>(sums, p, tile.expert, work.column_tile, warp, lane);
    }
    stage_sums(sums, shared, warp, lane);
    __syncthreads();
    Finish::template run<tensor_warps>(
        p, {shared, work.first, min(staged_rows, work.end - work.first), work.column_tile, warp,
            lane});
}

template <class Finish, bool gathered, bool backward>
cudaError_t launch(cudaStream_t stream, const ExpertProduct& p) {
    const int columns = column_tiles(p);
    const std::int64_t blocks = 2 * most_expert_tiles(p.rows, p.experts) * columns;
    if (blocks > INT32_MAX) return cudaErrorInvalidValue;
    const auto run = [&](auto adds) {
        return launch_with_shared<product_kernel<Finish, gathered, backward, adds()>,
                                  tensor_shared>(
            stream, least_shared_bytes, static_cast<unsigned>(blocks), tensor_threads, p, columns);
    };
    return p.added.factors == nullptr ? run(std::false_type{}) : run(std::true_type{});
}

}  // namespace

}  // namespace grouped

bool runs_expert_product_hopper(int shared_limit) {
    int device = 0;
    int major = 0;
    int minor = 0;
    return shared_limit >= most_shared_bytes && cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) ==
               cudaSuccess &&
           major == 9 && minor == 0;
}

cudaError_t expert_product_tensor(cudaStream_t stream, const ExpertProduct& p) {
    using namespace grouped;
    return with_finish(p, [&](auto finish) {
        using Finish = decltype(finish);
        if constexpr (Finish::finish == ExpertFinish::store && Finish::biased) {
            return launch<Finish, false, false>(stream, p);
        } else if constexpr (Finish::finish == ExpertFinish::store) {
            return p.backward ? launch<Finish, false, true>(stream, p)
                              : launch<Finish, false, false>(stream, p);
        } else {
            return launch<Finish, true, Finish::finish == ExpertFinish::gate_backward>(stream, p);
        }
    });
}

}  // namespace loratrain::kernels
