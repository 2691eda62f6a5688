#include <cmath>
#include <type_traits>

#include "cross_entropy.h"
#include "launch.cuh"
#include "stored_columns.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned row_threads = 512;
constexpr unsigned row_warps = row_threads / 32;
/// Of a multiprocessor.
template <int N>
constexpr unsigned row_blocks = N == wide ? 2 : 3;
constexpr unsigned bin_threads = 1024;

/// Largest value seen and the sum of e^(x - largest).
struct Running {
    float largest = -INFINITY;
    double sum = 0.0;
};

__device__ __forceinline__ Running merged(const Running& a, const Running& b) {
    if (a.largest == -INFINITY && a.sum == 0.0) return b;
    if (b.largest == -INFINITY && b.sum == 0.0) return a;
    const float largest = fmaxf(a.largest, b.largest);
    const auto part = [&](const Running& x) {
        return x.largest == largest ? x.sum
                                    : x.sum * static_cast<double>(expf(x.largest - largest));
    };
    return {largest, part(a) + part(b)};
}

__device__ __forceinline__ Running merged_over_block(Running mine) {
    __shared__ Running warps[row_warps];
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Running other{__shfl_xor_sync(0xffffffffU, mine.largest, offset),
                            __shfl_xor_sync(0xffffffffU, mine.sum, offset)};
        mine = threadIdx.x % 32U & static_cast<unsigned>(offset) ? merged(other, mine)
                                                                 : merged(mine, other);
    }
    if (threadIdx.x % 32U == 0) warps[threadIdx.x / 32U] = mine;
    __syncthreads();
    Running total = warps[0];
    for (unsigned i = 1; i < row_warps; ++i) total = merged(total, warps[i]);
    return total;
}

/// Calls f(first column, values) for N columns of a row at a time, some of which are loaded before
/// the first are used; a thread's in their order, or with `backwards` from the row's end, which the
/// L2 still has of a pass before.
template <int N, bool backwards = false, class T, class F>
__device__ __forceinline__ void for_each_piece(const T* logits, std::int64_t cols, const F& f) {
    constexpr int at_once = 4;
    constexpr int step = row_threads * N;
    const auto end = static_cast<int>(cols);
    const int turns = (end + at_once * step - 1) / (at_once * step);
    for (int turn = 0; turn < turns; ++turn) {
        const int first = (backwards ? turns - 1 - turn : turn) * (at_once * step) +
                          static_cast<int>(threadIdx.x) * N;
        StoredColumns<T, N> pieces[at_once];
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (first + i * step < end) pieces[i].take(logits + first + i * step);
        }
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
            if (first + i * step >= end) continue;
            float v[N];
            pieces[i].values(v);
            f(first + i * step, v);
        }
    }
}

/// Adds N values; `beaten` becomes true when one of them beats the target's logit. Where all of a
/// thread's values so far are -inf their sum is 0, not NaN: others have larger ones.
template <class T, int N>
__device__ __forceinline__ void add_values(const float (&v)[N], int first, int target, float own,
                                           Running& running, bool& beaten) {
    float of_piece = v[0];
#pragma unroll
    for (int i = 1; i < N; ++i) of_piece = fmaxf(of_piece, v[i]);
    if (target >= first && target < first + N) {
        const int place = target - first;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            beaten = beaten || (i < place && v[i] >= own) || (i > place && v[i] > own);
        }
    } else {
        beaten = beaten || (first < target ? of_piece >= own : of_piece > own);
    }
    const float largest = fmaxf(running.largest, of_piece);
    const float shift = largest == -INFINITY ? 0.0F : largest;
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exponential<T>(v[i] - shift);
    if (largest != running.largest && running.sum != 0.0) {
        running.sum *= static_cast<double>(expf(running.largest - largest));
    }
    running.largest = largest;
    running.sum += static_cast<double>(sum);
}

/// Sum of value(logit) over the block; all threads get it.
template <int N, class T, class Value>
__device__ double sum_over_logits(const T* logits, std::int64_t cols, const Value& value) {
    __shared__ double warps[row_warps];
    double mine = 0.0;
    for_each_piece<N>(logits, cols, [&](int, const float(&v)[N]) {
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < N; ++i) sum += value(v[i]);
        mine += static_cast<double>(sum);
    });
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        mine += __shfl_xor_sync(0xffffffffU, mine, offset);
    }
    if (threadIdx.x % 32U == 0) warps[threadIdx.x / 32U] = mine;
    __syncthreads();
    double total = 0.0;
    for (const double part : warps) total += part;
    return total;
}

template <int N, class T>
__device__ double sum_of_logits(const T* logits, std::int64_t cols) {
    return sum_over_logits<N>(logits, cols, [](float x) { return x; });
}

/// Of e^(x - shift) (x - shift).
template <int N, class T>
__device__ double sum_of_weighted(const T* logits, std::int64_t cols, float shift) {
    return sum_over_logits<N>(logits, cols, [shift](float x) {
        const float e = exponential<T>(x - shift);
        return e == 0.0F ? 0.0F : e * (x - shift);
    });
}

/// The numbers of TokenLoss, of a row.
struct FormedLoss {
    double loss;
    double softmax;  ///< what it is multiplied by in the gradient
    double all;      ///< taken from every logit's gradient
    double target;   ///< and from the target's beside
};

/// `mean` of the logits; for the entropy weighted by their softmax.
__device__ __forceinline__ FormedLoss formed_loss(const TokenLoss& form, double log_sum,
                                                  double target, double mean) {
    if (form.entropy) return {log_sum - mean, 0.0, 0.0, 0.0};
    const double weight = form.dft ? exp(target - log_sum) : 1.0;
    const double smoothing = form.label_smoothing;
    const double z = form.z_loss;
    const double smoothed = smoothing > 0.0 ? smoothing * mean : 0.0;
    return {weight * (log_sum - (1.0 - smoothing) * target - smoothed) + z * log_sum * log_sum,
            weight + 2.0 * z * log_sum, weight * smoothing, weight * (1.0 - smoothing)};
}

/// What the gradient of a capped logit is multiplied by for that of the logit before.
__device__ __forceinline__ float slope_of_cap(float capped, float cap) {
    if (cap == 0.0F) return 1.0F;
    const float t = capped / cap;
    return 1.0F - t * t;
}

/// Logits of a row become its gradient; `target`: among these columns.
template <class T, int N>
__device__ void formed_gradient(T* logits, std::int64_t cols, std::int64_t columns, int target,
                                float scale, float largest, double sum, const FormedLoss& of,
                                float soft_cap) {
    const auto factor = static_cast<float>(static_cast<double>(scale) * of.softmax / sum);
    const auto all =
        static_cast<float>(static_cast<double>(scale) * of.all / static_cast<double>(columns));
    const auto beside = static_cast<float>(static_cast<double>(scale) * of.target);
    for_each_piece<N, true>(logits, cols, [&](int j, float(&v)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float slope = slope_of_cap(v[i], soft_cap);
            v[i] = exponential<T>(v[i] - largest) * factor - all;
            if (j + i == target) v[i] -= beside;
            if (soft_cap != 0.0F) v[i] *= slope;
        }
        store<N>(logits + j, v);
    });
}

/// row_kernel of a form that is not plain.
template <class T, int N>
__global__ void __launch_bounds__(row_threads, row_blocks<N>)
    formed_row_kernel(CrossEntropyParams p) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t cols = p.logits.cols;
    T* logits = static_cast<T*>(p.logits.data) + row * p.logits.ld;
    const int target = p.targets[row];
    const float own = to_float(logits[target]);
    Running running;
    bool beaten = !(own == own);
    for_each_piece<N>(logits, cols, [&](int j, const float(&v)[N]) {
        add_values<T>(v, j, target, own, running, beaten);
    });
    const bool wrong = __syncthreads_or(beaten) != 0;
    const Running total = merged_over_block(running);
    double mean = 0.0;
    if (p.form.entropy) {
        mean = static_cast<double>(total.largest) +
               sum_of_weighted<N>(logits, cols, total.largest) / total.sum;
    } else if (p.form.label_smoothing > 0.0F) {
        mean = sum_of_logits<N>(logits, cols) / static_cast<double>(cols);
    }
    const double log_sum = static_cast<double>(total.largest) + log(total.sum);
    const FormedLoss formed = formed_loss(p.form, log_sum, static_cast<double>(own), mean);
    if (threadIdx.x == 0) {
        p.row_losses[row] = formed.loss;
        p.row_wrong[row] = wrong ? 1 : 0;
    }
    if (!p.gradient) return;
    __syncthreads();
    formed_gradient<T, N>(logits, cols, cols, target, p.scales[row], total.largest, total.sum,
                          formed, p.soft_cap);
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads, row_blocks<N>) row_kernel(CrossEntropyParams p) {
    const std::int64_t row = blockIdx.x;
    T* logits = static_cast<T*>(p.logits.data) + row * p.logits.ld;
    const int target = p.targets[row];
    const float own = to_float(logits[target]);
    Running running;
    bool beaten = !(own == own);
    for_each_piece<N>(logits, p.logits.cols, [&](int j, const float(&v)[N]) {
        add_values<T>(v, j, target, own, running, beaten);
    });
    const bool wrong = __syncthreads_or(beaten) != 0;
    const Running total = merged_over_block(running);
    if (threadIdx.x == 0) {
        p.row_losses[row] =
            static_cast<double>(total.largest) - static_cast<double>(own) + log(total.sum);
        p.row_wrong[row] = wrong ? 1 : 0;
    }
    if (!p.gradient) return;
    const float scale = p.scales[row];
    const auto factor = static_cast<float>(static_cast<double>(scale) / total.sum);
    const auto inverse = static_cast<float>(1.0 / total.sum);
    for_each_piece<N, true>(logits, p.logits.cols, [&](int j, float(&v)[N]) {
        const int place = target - j;
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float slope = slope_of_cap(v[i], p.soft_cap);
            const float e = exponential<T>(v[i] - total.largest);
            v[i] = place == i ? scale * (e * inverse - 1.0F) : e * factor;
            if (p.soft_cap != 0.0F) v[i] *= slope;
        }
        store<N>(logits + j, v);
    });
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads, row_blocks<N>) statistics_kernel(LaneLogits p) {
    const std::int64_t row = blockIdx.x;
    const Matrix& m = p.of.logits;
    const T* logits = static_cast<const T*>(m.data) + row * m.ld;
    const auto target = static_cast<int>(p.of.targets[row] - p.first_column);
    const bool here = target >= 0 && target < m.cols;
    const float own = here ? to_float(logits[target]) : INFINITY;
    Running running;
    bool beaten = !(own == own);
    for_each_piece<N>(logits, m.cols, [&](int j, const float(&v)[N]) {
        add_values<T>(v, j, target, own, running, beaten);
    });
    const bool wrong = __syncthreads_or(beaten) != 0;
    const Running total = merged_over_block(running);
    double sum = 0.0;
    if (p.of.form.entropy) {
        const float shift = total.largest == -INFINITY ? 0.0F : total.largest;
        sum = sum_of_weighted<N>(logits, m.cols, shift);
    } else if (p.of.form.label_smoothing > 0.0F) {
        sum = sum_of_logits<N>(logits, m.cols);
    }
    if (threadIdx.x != 0) return;
    double standing = 0.0;
    if (here) standing = wrong ? -1.0 : 1.0;
    p.statistics[p.lane * m.rows + row] = {static_cast<double>(total.largest), total.sum,
                                           here ? static_cast<double>(own) : 0.0, standing, sum};
}

/// A row's numbers over all lanes.
struct WholeRow {
    double largest = -INFINITY;
    double sum = 0.0;  ///< of exp(logit - largest)
    double target = 0.0;
    double logits = 0.0;
    bool loses = true;
};

__device__ __forceinline__ WholeRow whole_row(const LaneLogits& p, std::int64_t row) {
    WholeRow whole;
    std::int32_t owner = 0;
    for (std::int32_t lane = 0; lane < p.lanes; ++lane) {
        const LaneStatistics part = p.statistics[lane * p.of.logits.rows + row];
        whole.largest = fmax(whole.largest, part.largest);
        if (part.standing == 0.0) continue;
        owner = lane;
        whole.target = part.target;
        whole.loses = part.standing < 0.0;
    }
    for (std::int32_t lane = 0; lane < p.lanes; ++lane) {
        const LaneStatistics part = p.statistics[lane * p.of.logits.rows + row];
        const double weight = part.largest == -INFINITY ? 0.0 : exp(part.largest - whole.largest);
        whole.sum += part.sum * weight;
        whole.logits += p.of.form.entropy && weight > 0.0
                            ? weight * (part.logits + (part.largest - whole.largest) * part.sum)
                            : part.logits;
        if (lane < owner) whole.loses = whole.loses || !(part.largest < whole.target);
        if (lane > owner) whole.loses = whole.loses || !(part.largest <= whole.target);
    }
    return whole;
}

template <class T, int N>
__global__ void __launch_bounds__(row_threads, row_blocks<N>) lane_row_kernel(LaneLogits p) {
    __shared__ WholeRow shared;
    const std::int64_t row = blockIdx.x;
    if (threadIdx.x == 0) {
        shared = whole_row(p, row);
        p.of.row_losses[row] = shared.largest - shared.target + log(shared.sum);
        p.of.row_wrong[row] = shared.loses ? 1 : 0;
    }
    if (!p.of.gradient) return;
    __syncthreads();
    const Matrix& m = p.of.logits;
    T* logits = static_cast<T*>(m.data) + row * m.ld;
    const auto target = static_cast<int>(p.of.targets[row] - p.first_column);
    const auto largest = static_cast<float>(shared.largest);
    const float scale = p.of.scales[row];
    const auto factor = static_cast<float>(static_cast<double>(scale) / shared.sum);
    const auto inverse = static_cast<float>(1.0 / shared.sum);
    for_each_piece<N, true>(logits, m.cols, [&](int j, float(&v)[N]) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float slope = slope_of_cap(v[i], p.of.soft_cap);
            const float e = exponential<T>(v[i] - largest);
            v[i] = j + i == target ? scale * (e * inverse - 1.0F) : e * factor;
            if (p.of.soft_cap != 0.0F) v[i] *= slope;
        }
        store<N>(logits + j, v);
    });
}

/// lane_row_kernel of a form that is not plain.
template <class T, int N>
__global__ void __launch_bounds__(row_threads, row_blocks<N>) formed_lane_row_kernel(LaneLogits p) {
    __shared__ WholeRow shared;
    __shared__ FormedLoss formed;
    const std::int64_t row = blockIdx.x;
    if (threadIdx.x == 0) {
        shared = whole_row(p, row);
        const double mean = p.of.form.entropy ? shared.largest + shared.logits / shared.sum
                                              : shared.logits / static_cast<double>(p.columns);
        formed = formed_loss(p.of.form, shared.largest + log(shared.sum), shared.target, mean);
        p.of.row_losses[row] = formed.loss;
        p.of.row_wrong[row] = shared.loses ? 1 : 0;
    }
    if (!p.of.gradient) return;
    __syncthreads();
    const Matrix& m = p.of.logits;
    formed_gradient<T, N>(static_cast<T*>(m.data) + row * m.ld, m.cols, p.columns,
                          static_cast<int>(p.of.targets[row] - p.first_column), p.of.scales[row],
                          static_cast<float>(shared.largest), shared.sum, formed, p.of.soft_cap);
}

/// One block; the thread of a bin's first row in a chunk adds up that bin's rows in order.
__global__ void __launch_bounds__(bin_threads) bin_kernel(CrossEntropyParams p) {
    __shared__ double losses[bin_threads];
    __shared__ std::int32_t wrong[bin_threads];
    __shared__ std::int32_t bins[bin_threads];
    const int mine = static_cast<int>(threadIdx.x);
    for (std::int64_t begin = 0; begin < p.logits.rows; begin += bin_threads) {
        const int count = static_cast<int>(min(p.logits.rows - begin, std::int64_t{bin_threads}));
        __syncthreads();
        if (mine < count) {
            const double loss = p.row_losses[begin + mine];
            losses[mine] = p.weights ? static_cast<double>(p.weights[begin + mine]) * loss : loss;
            wrong[mine] = p.row_wrong[begin + mine];
            bins[mine] = p.bins[begin + mine];
        }
        __syncthreads();
        if (mine >= count) continue;
        const std::int32_t bin = bins[mine];
        int earlier = 0;
        while (bins[earlier] != bin) ++earlier;
        if (earlier != mine) continue;
        double loss = p.loss_sums[bin];
        double wrong_count = p.wrong_counts != nullptr ? p.wrong_counts[bin] : 0.0;
        for (int i = mine; i < count; ++i) {
            if (bins[i] != bin) continue;
            loss += losses[i];
            wrong_count += wrong[i];
        }
        p.loss_sums[bin] = loss;
        if (p.wrong_counts != nullptr) p.wrong_counts[bin] = wrong_count;
    }
}

/// Calls launch(T{}, elements at once) with those of the logits.
template <class Launch>
void with_width(const Matrix& logits, const Launch& launch) {
    with_type(logits.type, [&](auto element) {
        if (all_wide({&logits})) {
            launch(element, std::integral_constant<int, wide>{});
        } else {
            launch(element, std::integral_constant<int, 1>{});
        }
        return cudaSuccess;
    });
}

}  // namespace

cudaError_t cross_entropy(cudaStream_t stream, const CrossEntropyParams& p) {
    if (p.logits.rows == 0 || p.logits.cols == 0) return cudaSuccess;
    const auto rows = static_cast<unsigned>(p.logits.rows);
    with_width(p.logits, [&](auto element, auto width) {
        using T = decltype(element);
        if (p.form.is_plain()) {
            row_kernel<T, width><<<rows, row_threads, 0, stream>>>(p);
        } else {
            formed_row_kernel<T, width><<<rows, row_threads, 0, stream>>>(p);
        }
    });
    bin_kernel<<<1, bin_threads, 0, stream>>>(p);
    return cudaGetLastError();
}

cudaError_t lane_statistics(cudaStream_t stream, const LaneLogits& p) {
    if (p.of.logits.rows == 0) return cudaSuccess;
    const auto rows = static_cast<unsigned>(p.of.logits.rows);
    with_width(p.of.logits, [&](auto element, auto width) {
        statistics_kernel<decltype(element), width><<<rows, row_threads, 0, stream>>>(p);
    });
    return cudaGetLastError();
}

cudaError_t lane_cross_entropy(cudaStream_t stream, const LaneLogits& p) {
    if (p.of.logits.rows == 0) return cudaSuccess;
    const auto rows = static_cast<unsigned>(p.of.logits.rows);
    with_width(p.of.logits, [&](auto element, auto width) {
        using T = decltype(element);
        if (p.of.form.is_plain()) {
            lane_row_kernel<T, width><<<rows, row_threads, 0, stream>>>(p);
        } else {
            formed_lane_row_kernel<T, width><<<rows, row_threads, 0, stream>>>(p);
        }
    });
    bin_kernel<<<1, bin_threads, 0, stream>>>(p.of);
    return cudaGetLastError();
}

}  // namespace loratrain::kernels
