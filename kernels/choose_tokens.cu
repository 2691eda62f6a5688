#include "choose_tokens.h"

#include <cmath>
#include <type_traits>

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned row_threads = 512;
constexpr int row_warps = row_threads / 32;
constexpr unsigned all_lanes = 0xffffffffU;
/// Columns whose weights are added up on their own: a warp's, at once.
constexpr int segment = 32 * wide;
/// Of shared memory for the sums of segments, which limits the vocabulary: 1,048,576 columns.
constexpr std::int64_t most_segments = 4096;

/// One row of logits and its block.
template <class T, int N>
struct Row {
    const T* logits;
    int cols;
    int segments;
    double* sums;  ///< [segments], shared memory

    /// Calls use(column, logit) for this thread's columns of the segment.
    template <class Use>
    __device__ __forceinline__ void for_each(int of, const Use& use) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
        for (int step = 0; step < wide; step += N) {
            const int first = of * segment + step * 32 + lane * N;
            if (first >= cols) continue;
            float v[N];
            load<N>(logits + first, v);
#pragma unroll
            for (int i = 0; i < N; ++i) use(first + i, v[i]);
        }
    }
};

__device__ __forceinline__ double sum_over_warp(double x) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(all_lanes, x, offset);
    return x;
}

/// Sets row.sums to the sums of weight(column, logit) over segments, and returns the sum of all.
template <class T, int N, class Weight>
__device__ double add_up(const Row<T, N>& row, const Weight& weight) {
    __shared__ double warps[row_warps];
    const int warp = static_cast<int>(threadIdx.x) / 32;
    __syncthreads();
    double mine = 0.0;
    for (int of = warp; of < row.segments; of += row_warps) {
        float sum = 0.0F;
        row.for_each(of, [&](int column, float x) { sum += weight(column, x); });
        const double whole = sum_over_warp(static_cast<double>(sum));
        if (threadIdx.x % 32U == 0) row.sums[of] = whole;
        mine += whole;
    }
    if (threadIdx.x % 32U == 0) warps[warp] = mine;
    __syncthreads();
    double total = 0.0;
    for (const double part : warps) total += part;
    return total;
}

/// A walk of one warp along weights, 32 at a time.
struct Walk {
    double before = 0.0;  ///< sum of what has been passed
    int last = 0;         ///< the last that is not 0

    /// The first of the lanes' weights, which are those from `first` on, up to which the sum
    /// exceeds `aim`; -1 if none does.
    __device__ __forceinline__ int step(int first, double weight, double aim) {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        double up_to = weight;
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const double other = __shfl_up_sync(all_lanes, up_to, offset);
            if (lane >= offset) up_to += other;
        }
        const unsigned beyond = __ballot_sync(all_lanes, weight > 0.0 && before + up_to > aim);
        if (beyond != 0) {
            const int at = __ffs(static_cast<int>(beyond)) - 1;
            before += __shfl_sync(all_lanes, up_to - weight, at);
            return first + at;
        }
        const unsigned some = __ballot_sync(all_lanes, weight > 0.0);
        if (some != 0) last = first + 31 - __clz(static_cast<int>(some));
        before += __shfl_sync(all_lanes, up_to, 31);
        return -1;
    }
};

/// The first column up to which the weights add up to more than `aim`, after add_up() with the same
/// weights; the last one that is not 0 where rounding leaves the sum short. All threads get it.
template <class T, int N, class Weight>
__device__ int reached(const Row<T, N>& row, const Weight& weight, double aim) {
    __shared__ int found;
    if (threadIdx.x < 32) {
        const int lane = static_cast<int>(threadIdx.x);
        Walk along;
        int of = -1;
        for (int first = 0; of < 0 && first < row.segments; first += 32) {
            const int mine = first + lane;
            of = along.step(first, mine < row.segments ? row.sums[mine] : 0.0, aim);
        }
        const bool is_short = of < 0;
        if (is_short) of = along.last;
        Walk within{is_short ? -INFINITY : along.before, of * segment};
        int column = -1;
        for (int first = of * segment; column < 0 && first < (of + 1) * segment; first += 32) {
            const int mine = first + lane;
            const bool is_own = mine < row.cols;
            const float x = is_own ? to_float(row.logits[mine]) : 0.0F;
            column = within.step(first, is_own ? static_cast<double>(weight(mine, x)) : 0.0, aim);
        }
        if (lane == 0) found = column < 0 ? within.last : column;
    }
    __syncthreads();
    return found;
}

/// A logit's place in the order of logits, which is that of their bits.
template <class T>
__device__ __forceinline__ std::uint32_t rank_of(float x) {
    const std::uint32_t bits = __float_as_uint(x + 0.0F);  // -0 is 0
    const std::uint32_t ordered = bits >> 31U ? ~bits : bits | 0x80000000U;
    return ordered >> (32U - 8U * sizeof(T));
}
template <class T>
__device__ __forceinline__ float logit_of(std::uint32_t rank) {
    const std::uint32_t ordered = rank << (32U - 8U * sizeof(T));
    return __uint_as_float(ordered >> 31U ? ordered & 0x7fffffffU : ~ordered);
}

struct Largest {
    float logit;
    int column;
};

/// Of equal ones the first.
template <class T, int N>
__device__ Largest largest_of(const Row<T, N>& row) {
    __shared__ Largest warps[row_warps];
    const auto better = [](const Largest& a, const Largest& b) {
        if (a.logit == b.logit) return a.column < b.column ? a : b;
        return a.logit > b.logit ? a : b;
    };
    const int warp = static_cast<int>(threadIdx.x) / 32;
    Largest mine{-INFINITY, 0};
    for (int of = warp; of < row.segments; of += row_warps) {
        row.for_each(of, [&](int column, float x) {
            if (x > mine.logit) mine = {x, column};
        });
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        mine = better(mine, {__shfl_xor_sync(all_lanes, mine.logit, offset),
                             __shfl_xor_sync(all_lanes, mine.column, offset)});
    }
    if (threadIdx.x % 32U == 0) warps[warp] = mine;
    __syncthreads();
    Largest all = warps[0];
    for (const Largest& other : warps) all = better(all, other);
    return all;
}

/// Tokens that top_p keeps: those above `rank`, and those of it up to column `last_equal`.
struct Kept {
    std::uint32_t rank = 0;
    int last_equal = 0x7fffffff;
    double mass;
};

template <class T, int N, class Weight>
__device__ Kept most_likely(const Row<T, N>& row, const Weight& weight, double wanted) {
    const auto mass_from = [&](std::uint32_t rank) {
        return add_up(row, [&](int column, float x) {
            return rank_of<T>(x) >= rank ? weight(column, x) : 0.0F;
        });
    };
    Kept kept;
    for (int bit = 8 * static_cast<int>(sizeof(T)) - 1; bit >= 0; --bit) {
        const std::uint32_t tried = kept.rank | 1U << static_cast<unsigned>(bit);
        if (mass_from(tried) >= wanted) kept.rank = tried;
    }
    const double above = mass_from(kept.rank + 1U);
    const auto of_equal = static_cast<double>(weight(0, logit_of<T>(kept.rank)));
    const double number = fmax(1.0, ceil((wanted - above) / of_equal));
    const auto is_equal = [&](int, float x) { return rank_of<T>(x) == kept.rank ? 1.0F : 0.0F; };
    const double all = add_up(row, is_equal);
    kept.last_equal = reached(row, is_equal, fmin(number, all) - 0.5);
    kept.mass = above + fmin(number, all) * of_equal;
    return kept;
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads) choose_kernel(ChooseTokensParams p, int segments) {
    extern __shared__ double sums[];
    const std::int64_t at = blockIdx.x;
    const Row<T, N> row{static_cast<const T*>(p.logits.data) + at * p.logits.ld,
                        static_cast<int>(p.logits.cols), segments, sums};
    const TokenDraw draw = p.draws[at];
    const Largest largest = largest_of(row);
    if (draw.temperature == 0.0) {
        if (threadIdx.x == 0) p.tokens[at] = {largest.logit, 0.0F, largest.column};
        return;
    }
    const auto inverse = static_cast<float>(fmin(1.0 / draw.temperature, 1e30));
    const auto weight = [&](int, float x) { return expf((x - largest.logit) * inverse); };
    const double all = add_up(row, [&](int, float x) { return expf(x - largest.logit); });
    const double sum = draw.temperature == 1.0 ? all : add_up(row, weight);
    if (!isfinite(all)) {
        if (threadIdx.x == 0) p.tokens[at] = {largest.logit, NAN, 0};
        return;
    }
    int token = 0;
    if (draw.top_p < 1.0) {
        const Kept kept = most_likely(row, weight, draw.top_p * sum);
        const auto kept_weight = [&](int column, float x) {
            const std::uint32_t rank = rank_of<T>(x);
            const bool is_kept =
                rank > kept.rank || (rank == kept.rank && column <= kept.last_equal);
            return is_kept ? weight(column, x) : 0.0F;
        };
        add_up(row, kept_weight);
        token = reached(row, kept_weight, draw.uniform * kept.mass);
    } else {
        token = reached(row, weight, draw.uniform * sum);
    }
    if (threadIdx.x != 0) return;
    const float logit = to_float(row.logits[token]);
    const double below = static_cast<double>(logit) - static_cast<double>(largest.logit);
    p.tokens[at] = {logit, static_cast<float>(below - log(all)), token};
}

}  // namespace

cudaError_t choose_tokens(cudaStream_t stream, const ChooseTokensParams& params) {
    const std::int64_t segments = (params.logits.cols + segment - 1) / segment;
    if (params.logits.rows == 0) return cudaSuccess;
    if (segments > most_segments) return cudaErrorInvalidValue;
    const auto launch = [&](auto element, auto columns) {
        choose_kernel<decltype(element), decltype(columns)::value>
            <<<static_cast<unsigned>(params.logits.rows), row_threads,
               static_cast<std::size_t>(segments) * sizeof(double), stream>>>(
                params, static_cast<int>(segments));
        return cudaGetLastError();
    };
    return with_type(params.logits.type, [&](auto element) {
        return all_wide({&params.logits}) ? launch(element, std::integral_constant<int, wide>{})
                                          : launch(element, std::integral_constant<int, 1>{});
    });
}

}  // namespace loratrain::kernels
