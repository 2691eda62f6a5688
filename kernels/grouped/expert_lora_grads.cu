#include "expert_lora_tile.cuh"

/// Gradient of M_e += sᵀ x: a block has one expert, the slices of one adapter, 32 of their ranks
/// and 256 wide columns, a warp 32 of these; it goes through the adapter's places in the expert in
/// their order, 64 at a time.

namespace loratrain::kernels {

namespace grouped {

namespace {

constexpr int grad_places = 64;
constexpr int grad_columns = 256;
constexpr int grad_warp_columns = grad_columns / lora_warps;
constexpr int grad_panels = grad_columns / lora_columns;
constexpr int grad_ranks = 32;
constexpr int grad_panel_bytes = grad_places * LoraTile::row_bytes;
constexpr int grad_s_row_bytes = grad_ranks * 2;
constexpr int grad_s_at = grad_panels * grad_panel_bytes;
constexpr int grad_stage_bytes = grad_s_at + grad_places * grad_s_row_bytes;
constexpr int grad_shared = 2 * grad_stage_bytes;
static_assert(lora_columns % grad_warp_columns == 0);

/// A rank of a block: its column of s, and its gradient of wide column 0.
struct GradRank {
    float* gradient;
    std::int32_t step;    ///< from the gradient of a wide column to that of the next
    std::int32_t column;  ///< -1: none
};

struct GradTables {
    GradRank ranks[grad_ranks];
    int places[2];  ///< of the adapter in the expert: the first, and behind the last
};

/// The first place in [begin, end) whose row is not below `row`; rows ascend there. Run by a warp.
__device__ __forceinline__ int place_from(const std::int32_t* rows, int begin, int end, int row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    while (begin < end) {
        const int stride = (end - begin + 31) / 32;
        const int probe = begin + lane * stride;
        const bool is_below = probe < end && rows[probe] < row;
        const int below = __popc(__ballot_sync(0xffffffffU, is_below));
        if (below == 0) return begin;
        end = min(end, begin + below * stride);
        begin += (below - 1) * stride + 1;
    }
    return begin;
}

class GradBlock {
  public:
    __device__ GradBlock(const ExpertLoraArguments& p, GradTables& tables, std::uint32_t shared)
        : p_(p),
          tables_(tables),
          shared_(shared),
          expert_(static_cast<int>(blockIdx.x) / p.slices.count),
          slice_(static_cast<int>(blockIdx.x) % p.slices.count),
          first_column_(static_cast<int>(blockIdx.y) * grad_columns),
          thread_(static_cast<int>(threadIdx.x)) {}

    __device__ void run() {
        find_ranks();
        find_places();
        __syncthreads();
        const int steps = (tables_.places[1] - tables_.places[0] + grad_places - 1) / grad_places;
        if (steps == 0 || tables_.ranks[0].column < 0) return;
        prefetch_gradients();
        find_narrow();
        Sums sums = {};
        find_sources(0);
        copy(0, steps);
        copy(1, steps);
        for (int step = 0; step < steps; ++step) {
            wait_for_pieces<1>();
            __syncthreads();
            add_step(sums, step);
            __syncthreads();
            copy(step + 2, steps);
        }
        store(sums);
    }

  private:
    __device__ int lane() const { return thread_ % 32; }
    __device__ int warp() const { return thread_ / 32; }

    __device__ void find_ranks() {
        if (thread_ >= grad_ranks) return;
        GradRank found{nullptr, 0, -1};
        int r = static_cast<int>(blockIdx.z) * grad_ranks + thread_;
        const std::int64_t cols = p_.slices.cols;
        for (int i = 0; i < p_.slices.slices[slice_].together; ++i) {
            const ExpertLoraSlice& slice = p_.slices.slices[slice_ + i];
            if (r >= 0 && r < slice.rank) {
                float* of_expert = slice.gradient + expert_ * slice.rank * cols;
                found = p_.slices.of_b ? GradRank{of_expert + r, slice.rank, slice.column + r}
                                       : GradRank{of_expert + r * cols, 1, slice.column + r};
            }
            r -= slice.rank;
        }
        tables_.ranks[thread_] = found;
    }

    __device__ void find_places() {
        if (warp() >= 2) return;
        const ExpertLoraSlice& slice = p_.slices.slices[slice_];
        const std::int32_t* offsets = p_.rows.routes.offsets + expert_;
        const int place = place_from(p_.rows.routes.rows, offsets[0], offsets[1],
                                     warp() == 0 ? slice.begin : slice.end);
        if (lane() == 0) tables_.places[warp()] = place;
    }

    __device__ std::uint32_t stage(int step) const { return shared_ + step % 2 * grad_stage_bytes; }

    using Sums = float[grad_ranks / 16][grad_warp_columns / 8][4];

    __device__ void copy(int step, int steps) {
        if (step < steps) {
            copy_wide(step);
            copy_narrow(step);
        }
        commit_pieces();
        if (step + 1 < steps) find_sources(step + 1);
    }

    static constexpr int wide_pieces = grad_columns / wide;
    static constexpr int rows_at_once = lora_threads / wide_pieces;
    static constexpr int rows_of_thread = grad_places / rows_at_once;
    static constexpr int narrow_pieces = grad_ranks / wide;
    static_assert(grad_places * narrow_pieces == lora_threads);

    /// Sets sources_: where the rows begin that this thread copies in a step, in pieces of 16
    /// bytes. A step early, since copies would wait for the rows' numbers.
    __device__ void find_sources(int step) {
        const auto row_pieces = static_cast<std::uint32_t>(p_.wide.x.ld / wide);
#pragma unroll
        for (int i = 0; i < rows_of_thread; ++i) {
            const int place = min(place_of(step, i), tables_.places[1] - 1);
            const int row = p_.wide.gathered ? p_.rows.routes.rows[place] : place;
            sources_[i] = row_pieces * row + thread_ % wide_pieces;
        }
    }

    __device__ int place_of(int step, int i) const {
        return tables_.places[0] + step * grad_places + thread_ / wide_pieces + i * rows_at_once;
    }

    __device__ void copy_wide(int step) const {
        const int piece = thread_ % wide_pieces;
        const bool is_column = first_column_ + piece * wide < p_.slices.cols;
        const std::uint32_t to = stage(step) + piece / LoraTile::chunks * grad_panel_bytes +
                                 LoraTile::offset(thread_ / wide_pieces, piece % LoraTile::chunks);
        const Bf16* from = static_cast<const Bf16*>(p_.wide.x.data) + first_column_;
#pragma unroll
        for (int i = 0; i < rows_of_thread; ++i) {
            const bool inside = is_column && place_of(step, i) < tables_.places[1];
            copy_16_async(to + i * rows_at_once * LoraTile::row_bytes,
                          from + std::uint64_t{sources_[i]} * wide, inside ? 16 : 0);
        }
    }

    static __device__ std::uint32_t narrow_piece(int row, int piece) {
        return grad_s_at + row * grad_s_row_bytes + ((piece ^ (row >> 1 & 3)) << 4);
    }

    /// A thread copies s of 8 ranks of a place. Sets narrow_column_: their first column, where
    /// they lie side by side from a multiple of 16 bytes on; else -1.
    __device__ void find_narrow() {
        const GradRank* ranks = tables_.ranks + thread_ % narrow_pieces * wide;
        const int first = ranks[0].column;
        const bool in_row = first >= 0 && ranks[wide - 1].column == first + wide - 1;
        narrow_column_ = in_row && first % wide == 0 ? first : -1;
    }

    /// Places behind the last are 0; ranks that are none reach only sums that are not stored.
    __device__ void copy_narrow(int step) const {
        const int row = thread_ / narrow_pieces;
        const int place = tables_.places[0] + step * grad_places + row;
        const bool inside = place < tables_.places[1];
        const std::uint32_t to = stage(step) + narrow_piece(row, thread_ % narrow_pieces);
        const Bf16* from = static_cast<const Bf16*>(p_.s.data) + place * p_.s.ld;
        if (!inside || narrow_column_ >= 0) {
            return copy_16_async(to, inside ? from + narrow_column_ : p_.s.data, inside ? 16 : 0);
        }
        const GradRank* ranks = tables_.ranks + thread_ % narrow_pieces * wide;
#pragma unroll
        for (int i = 0; i < wide; ++i) {
            if (ranks[i].column < 0) continue;
            const auto bits = __bfloat16_as_ushort(from[ranks[i].column]);
            asm volatile("st.shared.b16 [%0], %1;\n" ::"r"(to + i * 2), "h"(bits) : "memory");
        }
    }

    /// Ranks of this block that some adapter has.
    __device__ int most_ranks() const {
        return p_.slices.most_ranks - static_cast<int>(blockIdx.z) * grad_ranks;
    }

    __device__ void add_step(Sums& sums, int step) const {
        const int column = warp() * grad_warp_columns;
        const std::uint32_t x = stage(step) + column / lora_columns * grad_panel_bytes;
        const int piece = column % lora_columns / wide;
#pragma unroll
        for (int k = 0; k < grad_places / 16; ++k) {
            std::uint32_t b[grad_warp_columns / 16][4];
#pragma unroll
            for (int n = 0; n < grad_warp_columns / 16; ++n) {
                load_fragments_transposed(
                    b[n], x + LoraTile::offset(k * 16 + lane() % 16, piece + 2 * n + lane() / 16));
            }
#pragma unroll
            for (int m = 0; m < grad_ranks / 16; ++m) {
                if (m * 16 >= most_ranks()) break;
                std::uint32_t a[4];
                load_fragments_transposed(
                    a, stage(step) + narrow_piece(k * 16 + lane() / 16 * 8 + lane() % 8,
                                                  2 * m + lane() / 8 % 2));
#pragma unroll
                for (int n = 0; n < grad_warp_columns / 8; ++n) {
                    const std::uint32_t* of_columns = b[n / 2] + n % 2 * 2;
                    multiply_add(sums[m][n], a[0], a[1], a[2], a[3], of_columns[0], of_columns[1]);
                }
            }
        }
    }

    __device__ void store(const Sums& sums) const {
#pragma unroll
        for (int at = 0; at < grad_ranks / 8; ++at) {
            const int m = at / 2;
            const int half = at % 2;
            const GradRank& rank = tables_.ranks[m * 16 + half * 8 + lane() / 4];
            if (rank.column < 0) continue;
#pragma unroll
            for (int j = 0; j < grad_warp_columns / 8; ++j) {
                const int n = first_column_ + warp() * grad_warp_columns + j * 8 + lane() % 4 * 2;
                if (n >= p_.slices.cols) continue;
                add_pair(rank.gradient + n * std::int64_t{rank.step}, rank.step,
                         sums[m][j][2 * half], sums[m][j][2 * half + 1]);
            }
        }
    }

    /// Brings the gradients to the L2 while sums are made.
    __device__ void prefetch_gradients() const {
        constexpr int line = 32;  ///< values
        const int columns = min(grad_columns, static_cast<int>(p_.slices.cols) - first_column_);
        if (!p_.slices.of_b) {
            constexpr int lines = grad_columns / line;
            for (int i = thread_; i < grad_ranks * lines; i += lora_threads) {
                const GradRank& rank = tables_.ranks[i / lines];
                const int column = i % lines * line;
                if (rank.column >= 0 && column < columns) {
                    prefetch_line(rank.gradient + first_column_ + column);
                }
            }
            return;
        }
        const GradRank& rank = tables_.ranks[0];
        for (int i = thread_ * line; i < columns * rank.step; i += lora_threads * line) {
            prefetch_line(rank.gradient + std::int64_t{first_column_} * rank.step + i);
        }
    }
    static __device__ void prefetch_line(const float* at) {
        asm volatile("prefetch.global.L2 [%0];\n" ::"l"(at));
    }

    /// Of two neighbouring wide columns, whose number is even.
    static __device__ void add_pair(float* to, int step, float first, float second) {
        if (step == 1 && reinterpret_cast<std::uintptr_t>(to) % sizeof(float2) == 0) {
            float2* pair = reinterpret_cast<float2*>(to);
            *pair = make_float2(pair->x + first, pair->y + second);
        } else {
            to[0] += first;
            to[step] += second;
        }
    }

    const ExpertLoraArguments& p_;
    GradTables& tables_;
    std::uint32_t shared_;
    int expert_;
    int slice_;  ///< the first of the adapter
    int first_column_;
    int thread_;
    std::uint32_t sources_[rows_of_thread];
    int narrow_column_ = -1;
};

__global__ void __launch_bounds__(lora_threads, 3)
    grads_kernel(const __grid_constant__ ExpertLoraArguments p) {
    extern __shared__ __align__(128) char memory[];
    __shared__ GradTables tables;
    wait_for_kernel_before();
    if (p.slices.slices[blockIdx.x % p.slices.count].together == 0) return;
    GradBlock(p, tables, shared_address(memory)).run();
}

}  // namespace

}  // namespace grouped

cudaError_t add_expert_grads_tensor(cudaStream_t stream, const ExpertRows& rows,
                                    const ExpertWide& wide, const Matrix& s,
                                    const ExpertLoraSlices& slices) {
    using namespace grouped;
    if (!lora_takes(wide, s, slices)) return cudaErrorInvalidValue;
    if (s.rows == 0 || slices.count == 0) return cudaSuccess;
    const dim3 blocks(static_cast<unsigned>(rows.routes.experts * slices.count),
                      static_cast<unsigned>(pieces(slices.cols, grad_columns)),
                      static_cast<unsigned>(pieces(slices.most_ranks, grad_ranks)));
    return launch_with_shared<grads_kernel, grad_shared>(
        stream, rows.shared_limit, blocks, lora_threads,
        ExpertLoraArguments{rows, wide, s, slices});
}

}  // namespace loratrain::kernels
