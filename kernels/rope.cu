#include "rope.h"

#include <algorithm>

#include "launch.cuh"
#include "stored_columns.cuh"

namespace loratrain::kernels {

namespace {

/// N angles' columns of one head: of its halves, or 2 N columns that follow each other.
template <class T, int N, bool interleaved>
struct RotatedColumns {
    StoredColumns<T, N> low;
    StoredColumns<T, N> high;

    static __device__ __forceinline__ int high_column(int half) { return interleaved ? N : half; }
    /// `at`: the first.
    __device__ __forceinline__ void take(const T* at, int half) {
        low.take(at);
        high.take(at + high_column(half));
    }
    __device__ __forceinline__ void give(T* at, int half, const float* cosines, const float* sines,
                                         float scale) const {
        float values[2][N];
        low.values(values[0]);
        high.values(values[1]);
        float cosine[N];
        float sine[N];
        load<N>(cosines, cosine);
        load<N>(sines, sine);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            float& first = interleaved ? values[2 * i / N][2 * i % N] : values[0][i];
            float& second = interleaved ? values[(2 * i + 1) / N][(2 * i + 1) % N] : values[1][i];
            const float before = first;
            first = (before * cosine[i] - second * sine[i]) * scale;
            second = (second * cosine[i] + before * sine[i]) * scale;
        }
        store<N>(at, values[0]);
        store<N>(at + high_column(half), values[1]);
    }
};

__device__ __forceinline__ float scale_at(const RopeParams& p, std::int64_t row) {
    const auto position = static_cast<float>(p.positions[row]);
    return 1.0F + p.scale_beta * logf(1.0F + floorf(__fdiv_rn(position, p.scale_period)));
}

constexpr int heads_at_once = 2;

/// How the threads of a block share its rows: in each turn one has the columns of N angles in
/// heads_at_once heads, head_threads apart.
struct RopeShares {
    int rows;
    int angle_threads;  ///< of a head
    int head_threads;
    int head_turns;
    int angle_turns;

    __host__ __device__ int row_threads() const { return angle_threads * head_threads; }
    __device__ int head(int place, int turn) const {
        return place / angle_threads + turn % head_turns * heads_at_once * head_threads;
    }
    /// Of N each.
    __device__ int angles(int place, int turn) const {
        return place % angle_threads + turn / head_turns * angle_threads;
    }
};

/// The cosines and sines of the block's rows, [rows, half] each.
__device__ __forceinline__ void find_angles(const RopeParams& p, std::int64_t first, int count,
                                            int half, float* cosines, float* sines) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) {
        const auto position = static_cast<float>(p.positions[first + i / half]);
        float sine = 0.0F;
        sincosf(__fmul_rn(position, p.inv_freq[i % half]), &sine, &cosines[i]);
        sines[i] = p.backward ? -sine : sine;
    }
}

/// Dynamic shared memory holds the cosines and sines of the block's rows. What a thread rotates
/// first is under way while they are found.
template <class T, int N, bool interleaved>
__global__ void __launch_bounds__(block_threads) rope_kernel(RopeParams p, RopeShares shares) {
    extern __shared__ float cosines[];
    wait_for_kernel_before();
    const auto half = static_cast<int>(p.rotary_dim / 2);
    const auto heads = static_cast<int>(p.x.cols / p.head_dim);
    const auto head_dim = static_cast<int>(p.head_dim);
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * shares.rows;
    const int rows =
        static_cast<int>(min(static_cast<std::int64_t>(shares.rows), p.x.rows - first));
    const int row = static_cast<int>(threadIdx.x) / shares.row_threads();
    const int place = static_cast<int>(threadIdx.x) % shares.row_threads();
    T* x = static_cast<T*>(p.x.data) + (first + row) * p.x.ld;
    RotatedColumns<T, N, interleaved> columns[heads_at_once];
    const auto for_own = [&](int turn, const auto& body) {
        const int j = shares.angles(place, turn) * N;
        if (row >= rows || j >= half) return;
#pragma unroll
        for (int i = 0; i < heads_at_once; ++i) {
            const int head = shares.head(place, turn) + i * shares.head_threads;
            if (head < heads) body(columns[i], head * head_dim, j);
        }
    };
    const auto take = [&](auto& own, int column, int j) {
        own.take(x + column + (interleaved ? 2 * j : j), half);
    };
    for_own(0, take);
    float* sines = cosines + rows * half;
    find_angles(p, first, rows * half, half, cosines, sines);
    __syncthreads();
    const float scale =
        p.length * (p.scaled_columns > 0 && row < rows ? scale_at(p, first + row) : 1.0F);
    for (int turn = 0; turn < shares.head_turns * shares.angle_turns; ++turn) {
        if (turn > 0) for_own(turn, take);
        for_own(turn, [&](const auto& own, int column, int j) {
            own.give(x + column + (interleaved ? 2 * j : j), half, cosines + row * half + j,
                     sines + row * half + j, column < p.scaled_columns ? scale : p.length);
        });
    }
}

/// One turn where a row's threads fit in a block, and as many rows as give a block's threads
/// something to do.
RopeShares shares_of(const RopeParams& p, int columns) {
    constexpr int threads = static_cast<int>(block_threads);
    constexpr int most_rows = 16;
    const auto pieces = [](int count, int size) { return (count + size - 1) / size; };
    const auto heads = static_cast<int>(p.x.cols / p.head_dim);
    const auto angles = static_cast<int>(p.rotary_dim / 2 / columns);
    RopeShares shares{};
    shares.angle_threads = std::clamp(angles, 1, threads);
    shares.head_threads =
        std::clamp(pieces(heads, heads_at_once), 1, threads / shares.angle_threads);
    shares.rows = std::clamp(threads / shares.row_threads(), 1, most_rows);
    shares.head_turns = pieces(heads, heads_at_once * shares.head_threads);
    shares.angle_turns = pieces(angles, shares.angle_threads);
    return shares;
}

template <class T, int N>
cudaError_t launch(cudaStream_t stream, const RopeParams& p) {
    const RopeShares shares = shares_of(p, N);
    const auto shared = static_cast<std::size_t>(shares.rows * p.rotary_dim) * sizeof(float);
    const auto blocks = static_cast<unsigned>((p.x.rows + shares.rows - 1) / shares.rows);
    const auto threads = static_cast<unsigned>(shares.rows * shares.row_threads());
    void (*kernel)(RopeParams, RopeShares) = rope_kernel<T, N, false>;
    if (p.interleaved) kernel = rope_kernel<T, N, true>;
    return launch_early(stream, kernel, blocks, threads, shared, p, shares);
}

}  // namespace

cudaError_t rope(cudaStream_t stream, const RopeParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    return with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        const bool fits = p.head_dim % wide == 0 && p.rotary_dim % (2 * wide) == 0;
        return rows_aligned(p.x) && fits ? launch<T, wide>(stream, p) : launch<T, 1>(stream, p);
    });
}

}  // namespace loratrain::kernels
