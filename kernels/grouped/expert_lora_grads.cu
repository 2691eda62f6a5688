#include "expert_lora_tile.cuh"

/// Gradient of M_e += sᵀ x: a block has one expert, the slices of one adapter, 32 of their ranks
/// and 128 wide columns, a warp 16 of these; it goes through the adapter's places in the expert in
/// their order, 64 at a time.

namespace loratrain::kernels {

namespace grouped {

namespace {

constexpr int grad_places = 64;
constexpr int grad_columns = 128;
constexpr int grad_panels = grad_columns / lora_columns;
constexpr int grad_ranks = 32;
constexpr int grad_panel_bytes = grad_places * LoraTile::row_bytes;
constexpr int grad_s_row_bytes = grad_ranks * 2;
constexpr int grad_s_at = grad_panels * grad_panel_bytes;
constexpr int grad_stage_bytes = grad_s_at + grad_places * grad_s_row_bytes;
constexpr int grad_shared = 2 * grad_stage_bytes;
static_assert(grad_columns == lora_warps * 16);

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
        Sums sums = {};
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

    using Sums = float[grad_ranks / 16][2][4];

    __device__ void copy(int step, int steps) const {
        if (step < steps) {
            copy_wide(step);
            copy_narrow(step);
        }
        commit_pieces();
    }

    __device__ void copy_wide(int step) const {
        constexpr int pieces = grad_columns / wide;
        constexpr int at_once = lora_threads / pieces;
        const int piece = thread_ % pieces;
        const int column = first_column_ + piece * wide;
        const std::uint32_t to = stage(step) + piece / LoraTile::chunks * grad_panel_bytes;
        const Bf16* from = static_cast<const Bf16*>(p_.wide.x.data);
#pragma unroll
        for (int i = 0; i < grad_places / at_once; ++i) {
            const int row = thread_ / pieces + i * at_once;
            const int place = tables_.places[0] + step * grad_places + row;
            const bool inside = place < tables_.places[1] && column < p_.slices.cols;
            std::int64_t source = 0;
            if (inside) source = p_.wide.gathered ? p_.rows.routes.rows[place] : place;
            copy_16_async(to + LoraTile::offset(row, piece % LoraTile::chunks),
                          inside ? from + source * p_.wide.x.ld + column : from, inside ? 16 : 0);
        }
    }

    static __device__ std::uint32_t narrow_piece(int row, int piece) {
        return grad_s_at + row * grad_s_row_bytes + ((piece ^ (row >> 1 & 3)) << 4);
    }

    /// A thread copies s of 8 ranks of a place. Places behind the last are 0; ranks that are none
    /// reach only sums that are not stored.
    __device__ void copy_narrow(int step) const {
        static_assert(grad_places * grad_ranks / wide == lora_threads);
        constexpr int pieces = grad_ranks / wide;
        const int row = thread_ / pieces;
        const GradRank* ranks = tables_.ranks + thread_ % pieces * wide;
        const int place = tables_.places[0] + step * grad_places + row;
        const bool inside = place < tables_.places[1];
        const std::uint32_t to = stage(step) + narrow_piece(row, thread_ % pieces);
        const Bf16* from = static_cast<const Bf16*>(p_.s.data) + place * p_.s.ld;
        const bool in_row = ranks[wide - 1].column == ranks[0].column + wide - 1 &&
                            ranks[0].column >= 0 &&
                            reinterpret_cast<std::uintptr_t>(from + ranks[0].column) % 16 == 0;
        if (!inside || in_row) {
            return copy_16_async(to, inside ? from + ranks[0].column : p_.s.data, inside ? 16 : 0);
        }
#pragma unroll
        for (int i = 0; i < wide; ++i) {
            if (ranks[i].column < 0) continue;
            const auto bits = __bfloat16_as_ushort(from[ranks[i].column]);
            asm volatile("st.shared.b16 [%0], %1;\n" ::"r"(to + i * 2), "h"(bits) : "memory");
        }
    }

    __device__ void add_step(Sums& sums, int step) const {
        const std::uint32_t x = stage(step) + warp() * 16 / lora_columns * grad_panel_bytes;
        const int piece = warp() * 16 % lora_columns / wide;
#pragma unroll
        for (int k = 0; k < grad_places / 16; ++k) {
            std::uint32_t b[4];
            load_fragments_transposed(
                b, x + LoraTile::offset(k * 16 + lane() % 16, piece + lane() / 16));
#pragma unroll
            for (int m = 0; m < grad_ranks / 16; ++m) {
                std::uint32_t a[4];
                load_fragments_transposed(
                    a, stage(step) + narrow_piece(k * 16 + lane() / 16 * 8 + lane() % 8,
                                                  2 * m + lane() / 8 % 2));
                multiply_add(sums[m][0], a[0], a[1], a[2], a[3], b[0], b[1]);
                multiply_add(sums[m][1], a[0], a[1], a[2], a[3], b[2], b[3]);
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
            for (int j = 0; j < 2; ++j) {
                const int n = first_column_ + warp() * 16 + j * 8 + lane() % 4 * 2;
                if (n >= p_.slices.cols) continue;
                add_pair(rank.gradient + n * std::int64_t{rank.step}, rank.step,
                         sums[m][j][2 * half], sums[m][j][2 * half + 1]);
            }
        }
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
};

__global__ void __launch_bounds__(lora_threads, 4)
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
    return launch_early(stream, grads_kernel, blocks, lora_threads, grad_shared,
                        ExpertLoraArguments{rows, wide, s, slices});
}

}  // namespace loratrain::kernels
