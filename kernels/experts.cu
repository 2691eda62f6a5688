#include "experts.h"

#include "launch.cuh"

namespace loratrain::kernels {

namespace {

constexpr unsigned warp_threads = 32;
constexpr unsigned warps = block_threads / warp_threads;
constexpr unsigned order_threads = 1024;
constexpr unsigned order_warps = order_threads / warp_threads;
constexpr unsigned all_lanes = 0xffffffffU;
constexpr int per_lane = most_experts / warp_threads;
static_assert(most_expert_groups <= warp_threads);

/// A blocks' warps to rows; false: no such row.
__device__ __forceinline__ bool row_of_warp(std::int64_t rows, std::int64_t& row) {
    row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.x / warp_threads;
    return row < rows;
}

struct Candidate {
    float p;
    std::int32_t expert;
};

/// The larger, of equals the first.
__device__ __forceinline__ Candidate better(const Candidate& a, const Candidate& b) {
    const bool first = a.p > b.p || (a.p == b.p && a.expert < b.expert);
    return first ? a : b;
}

__device__ __forceinline__ Candidate best_of_warp(Candidate best) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const Candidate other{__shfl_xor_sync(all_lanes, best.p, offset),
                              __shfl_xor_sync(all_lanes, best.expert, offset)};
        best = better(best, other);
    }
    return best;
}

__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(all_lanes, value, offset));
    }
    return value;
}

/// Lane i < count has the i-th of the experts chosen; how many of the others are before it.
__device__ __forceinline__ int rank_of(std::int32_t expert, int count) {
    int rank = 0;
    for (int i = 0; i < count; ++i) {
        rank += __shfl_sync(all_lanes, expert, i) < expert ? 1 : 0;
    }
    return rank;
}

/// What a normalised router divides by, of the sum of the scores that are chosen.
__device__ __forceinline__ float divisor_of(float sum, bool sigmoid) {
    return sigmoid ? sum + least_score_sum : sum;
}

/// Scores of the logits in p; lane l has the experts l, l + 32, ...
__device__ __forceinline__ void make_softmax(float* p, int experts, int lane) {
    float largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) largest = fmaxf(largest, p[i]);
    largest = warp_max(largest);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        p[i] = lane + i * 32 < experts ? expf(p[i] - largest) : 0.0F;
        sum += p[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < per_lane; ++i) p[i] /= sum;
}

/// The largest key of the experts [begin, end) but `without`.
__device__ __forceinline__ Candidate largest_key(const float* keys, int begin, int end,
                                                 std::int32_t without, int lane) {
    Candidate best{-INFINITY, end};
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        const int e = lane + i * 32;
        if (e >= begin && e < end && e != without) best = better(best, {keys[i], e});
    }
    return best_of_warp(best);
}

/// Keys of experts in groups that are not used become -infinity.
__device__ __forceinline__ void leave_out_groups(float* keys, int experts, const RouterRule& rule,
                                                 int lane) {
    const int size = experts / rule.groups;
    float sum = -INFINITY;  // of the lane's group
    for (int g = 0; g < rule.groups; ++g) {
        const Candidate first = largest_key(keys, g * size, (g + 1) * size, -1, lane);
        const Candidate second = largest_key(keys, g * size, (g + 1) * size, first.expert, lane);
        if (lane == g) sum = first.p + second.p;
    }
    unsigned used = 0;
    for (int j = 0; j < rule.used_groups; ++j) {
        const bool open = lane < rule.groups && (used >> lane & 1U) == 0;
        used |= 1U << best_of_warp({open ? sum : -INFINITY, open ? lane : 32 + lane}).expert;
    }
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        const int e = lane + i * 32;
        if (e < experts && (used >> (e / size) & 1U) == 0) keys[i] = -INFINITY;
    }
}

__global__ void __launch_bounds__(block_threads)
    choose(const float* logits, std::int64_t ld, Routes to, RouterRule rule) {
    std::int64_t row = 0;
    if (!row_of_warp(to.tokens, row)) return;
    const int lane = static_cast<int>(threadIdx.x % warp_threads);
    const int experts = static_cast<int>(to.routed());
    const int count = static_cast<int>(to.per_token);
    float p[per_lane];
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        const int e = lane + i * 32;
        p[i] = e < experts ? logits[row * ld + e] : -INFINITY;
        if (rule.sigmoid) p[i] = 1.0F / (1.0F + expf(-p[i]));
    }
    if (!rule.sigmoid) make_softmax(p, experts, lane);
    float* scores = to.probabilities + row * experts;
    // From here on p are keys.
#pragma unroll
    for (int i = 0; i < per_lane; ++i) {
        const int e = lane + i * 32;
        if (e < experts) scores[e] = p[i];
        if (isnan(p[i])) p[i] = 0.0F;  // so that some experts are chosen
        if (e >= experts) p[i] = -INFINITY;
        if (e < experts && rule.bias != nullptr) p[i] += rule.bias[e];
    }
    if (rule.groups > 1) leave_out_groups(p, experts, rule, lane);
    __syncwarp();
    Candidate own{0.0F, 0};
    float chosen_sum = 0.0F;
    for (int j = 0; j < count; ++j) {
        Candidate best{-INFINITY, experts};
#pragma unroll
        for (int i = 0; i < per_lane; ++i) best = better(best, {p[i], lane + i * 32});
        best = best_of_warp(best);
        if (rule.bias != nullptr) best.p = scores[best.expert];
        chosen_sum += best.p;
        if (lane == j) own = best;
#pragma unroll
        for (int i = 0; i < per_lane; ++i) {
            if (lane + i * 32 == best.expert) p[i] = -INFINITY;
        }
    }
    const int rank = rank_of(own.expert, count);
    if (lane >= count) return;
    const float by = rule.normalised ? divisor_of(chosen_sum, rule.sigmoid) : 1.0F;
    const float weight = own.p / by * rule.scale;
    to.chosen[row * count + rank] = own.expert;
    const std::int64_t of_lane = own.expert - to.before;
    if (of_lane < 0 || of_lane >= to.experts) to.places[row * count + rank] = -1;
    to.weights[row * count + rank] = weight;
}

/// All threads of a block: how many of those before have `one`, and of all.
struct Before {
    int before;
    int all;
};
__device__ __forceinline__ Before count_before(bool one, int* of_warps) {
    const unsigned warp = threadIdx.x / warp_threads;
    const unsigned lane = threadIdx.x % warp_threads;
    const unsigned flags = __ballot_sync(all_lanes, one);
    __syncthreads();
    if (lane == 0) of_warps[warp] = __popc(flags);
    __syncthreads();
    Before result{__popc(flags & ((1U << lane) - 1U)), 0};
    for (unsigned w = 0; w < order_warps; ++w) {
        if (w < warp) result.before += of_warps[w];
        result.all += of_warps[w];
    }
    return result;
}

/// Entries of `chosen` in the lane's experts below `expert`: where its rows begin.
__device__ __forceinline__ std::int32_t entries_below(const Routes& to, int expert, int* of_warps) {
    int count = 0;
    for (std::int64_t i = threadIdx.x; i < to.tokens * to.per_token; i += order_threads) {
        const std::int32_t chosen = to.chosen[i];
        count += chosen >= to.before && chosen < expert ? 1 : 0;
    }
    return block_sum(count, of_warps);
}

__global__ void __launch_bounds__(order_threads) order_rows(Routes to) {
    __shared__ int of_warps[order_warps];
    const int own = static_cast<int>(blockIdx.x);
    const int expert = static_cast<int>(to.before) + own;
    const int count = static_cast<int>(to.per_token);
    std::int32_t next = entries_below(to, expert, of_warps);
    if (threadIdx.x == 0) to.offsets[own] = next;
    for (std::int64_t begin = 0; begin < to.tokens; begin += order_threads) {
        const std::int64_t row = begin + threadIdx.x;
        int slot = -1;
        for (int j = 0; j < count && row < to.tokens; ++j) {
            if (to.chosen[row * count + j] == expert) slot = j;
        }
        const Before found = count_before(slot >= 0, of_warps);
        if (slot >= 0) {
            const std::int32_t place = next + found.before;
            to.places[row * count + slot] = place;
            to.rows[place] = static_cast<std::int32_t>(row);
        }
        next += found.all;
    }
    if (own + 1 < to.experts) return;
    if (threadIdx.x == 0) to.offsets[to.experts] = next;
    for (std::int64_t i = next + threadIdx.x; i < to.tokens * count; i += order_threads) {
        to.rows[i] = -1;
    }
}

template <class T, int N>
struct CombineBody {
    T* y;
    const T* x;
    const T* added;
    const std::int32_t* places;
    const float* weights;  // null: 1
    int count;
    std::int64_t y_ld, x_ld, added_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float sum[N];
        load<N>(added + row * added_ld + col, sum);
        for (int j = 0; j < count; ++j) {
            const std::int64_t entry = row * count + j;
            const std::int32_t place = places[entry];
            if (place < 0) continue;
            const float weight = weights == nullptr ? 1.0F : weights[entry];
            float v[N];
            load<N>(x + place * x_ld + col, v);
#pragma unroll
            for (int i = 0; i < N; ++i) sum[i] = fmaf(weight, v[i], sum[i]);
        }
        store<N>(y + row * y_ld + col, sum);
    }
};

template <class T, int N>
cudaError_t launch_combine(cudaStream_t stream, const Matrix& y, const Matrix& x,
                           const Matrix& added, const Routes& routes, bool weighted) {
    return launch_elements<N>(
        stream, y.rows, y.cols,
        CombineBody<T, N>{pointer<T>(y), pointer<const T>(x), pointer<const T>(added),
                          routes.places, weighted ? routes.weights : nullptr,
                          static_cast<int>(routes.per_token), y.ld, x.ld, added.ld});
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    weigh(T* inner, std::int64_t inner_ld, const T* product, std::int64_t product_ld,
          std::int64_t cols, float* d_weights, Routes routes) {
    std::int64_t entry = 0;
    if (!row_of_warp(routes.tokens * routes.per_token, entry)) return;
    const std::int64_t place = routes.places[entry];
    const float weight = routes.weights[entry];
    const unsigned lane = threadIdx.x % warp_threads;
    float sum = 0.0F;
    for (std::int64_t j = lane; place >= 0 && j < cols; j += warp_threads) {
        T& at = inner[place * inner_ld + j];
        const float value = to_float(at);
        sum = fmaf(value, to_float(product[place * product_ld + j]), sum);
        at = from_float<T>(value * weight);
    }
    sum = warp_sum(sum);
    if (lane == 0) d_weights[entry] = sum;
}

template <class T>
struct BiasBody {
    T* y;
    const float* bias;
    const std::int32_t* places;
    const std::int32_t* chosen;
    std::int64_t ld, cols, before;
    __device__ void operator()(std::int64_t entry, std::int64_t col) const {
        if (places[entry] < 0) return;
        T& at = y[places[entry] * ld + col];
        at = from_float<T>(to_float(at) + bias[(chosen[entry] - before) * cols + col]);
    }
};

template <class T>
__global__ void __launch_bounds__(block_threads)
    bias_gradients(const T* dy, std::int64_t ld, std::int64_t cols, const float* bias,
                   float* d_weights, Routes routes) {
    std::int64_t entry = 0;
    if (!row_of_warp(routes.tokens * routes.per_token, entry)) return;
    const T* row = dy + entry / routes.per_token * ld;
    if (routes.places[entry] < 0) return;
    const float* of_expert = bias + (routes.chosen[entry] - routes.before) * cols;
    const unsigned lane = threadIdx.x % warp_threads;
    float sum = 0.0F;
    for (std::int64_t j = lane; j < cols; j += warp_threads) {
        sum = fmaf(to_float(row[j]), of_expert[j], sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) d_weights[entry] += sum;
}

template <class T>
__global__ void __launch_bounds__(block_threads)
    to_logits(T* d_logits, std::int64_t ld, const float* d_weights, Routes routes,
              RouterRule rule) {
    std::int64_t row = 0;
    if (!row_of_warp(routes.tokens, row)) return;
    const int lane = static_cast<int>(threadIdx.x % warp_threads);
    const int count = static_cast<int>(routes.per_token);
    const float* p = routes.probabilities + row * routes.routed();
    const bool own = lane < count;
    const std::int32_t expert = own ? routes.chosen[row * count + lane] : 0;
    const float d_weight = own ? d_weights[row * count + lane] * rule.scale : 0.0F;
    const float probability = own ? p[expert] : 0.0F;
    const float sum = warp_sum(probability);
    const float mean = warp_sum(d_weight * probability);
    const float by = divisor_of(sum, rule.sigmoid);
    const float inner = rule.normalised || rule.sigmoid ? 0.0F : mean;
    const float d_score = rule.normalised ? (d_weight - mean / by) / by : d_weight;
    const float slope = rule.sigmoid ? 1.0F - probability : 1.0F;
    for (std::int64_t e = lane; e < routes.routed(); e += warp_threads) {
        d_logits[row * ld + e] = from_float<T>(-p[e] * inner);
    }
    __syncwarp();
    if (own) {
        d_logits[row * ld + expert] = from_float<T>(probability * slope * (d_score - inner));
    }
}

unsigned blocks_of(std::int64_t rows) {
    return static_cast<unsigned>((rows + warps - 1) / warps);
}

}  // namespace

cudaError_t route(cudaStream_t stream, const Matrix& logits, const Routes& to,
                  const RouterRule& rule) {
    if (logits.type != Element::f32 || to.experts < 1 || to.routed() > most_experts ||
        to.per_token > most_experts_per_token || rule.groups < 1 ||
        rule.groups > most_expert_groups) {
        return cudaErrorInvalidValue;
    }
    if (to.tokens > 0) {
        choose<<<blocks_of(to.tokens), block_threads, 0, stream>>>(pointer<const float>(logits),
                                                                   logits.ld, to, rule);
        const cudaError_t error = cudaGetLastError();
        if (error != cudaSuccess) return error;
    }
    order_rows<<<static_cast<unsigned>(to.experts), order_threads, 0, stream>>>(to);
    return cudaGetLastError();
}

cudaError_t combine_experts(cudaStream_t stream, const Matrix& y, const Matrix& x,
                            const Matrix& added, const Routes& routes, bool weighted) {
    return with_type(y.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&y, &x, &added})
                   ? launch_combine<T, wide>(stream, y, x, added, routes, weighted)
                   : launch_combine<T, 1>(stream, y, x, added, routes, weighted);
    });
}

cudaError_t weigh_experts(cudaStream_t stream, const Matrix& inner, const Matrix& product,
                          float* d_weights, const Routes& routes) {
    if (inner.rows == 0) return cudaSuccess;
    return with_type(inner.type, [&](auto element) {
        using T = decltype(element);
        weigh<T><<<blocks_of(inner.rows), block_threads, 0, stream>>>(
            pointer<T>(inner), inner.ld, pointer<const T>(product), product.ld, inner.cols,
            d_weights, routes);
        return cudaGetLastError();
    });
}

cudaError_t add_expert_bias(cudaStream_t stream, const Matrix& y, const float* bias,
                            const Routes& routes) {
    return with_type(y.type, [&](auto element) {
        using T = decltype(element);
        return launch_elements<1>(stream, y.rows, y.cols,
                                  BiasBody<T>{pointer<T>(y), bias, routes.places, routes.chosen,
                                              y.ld, y.cols, routes.before});
    });
}

cudaError_t add_bias_gradients(cudaStream_t stream, const Matrix& dy, const float* bias,
                               float* d_weights, const Routes& routes) {
    if (dy.rows == 0) return cudaSuccess;
    return with_type(dy.type, [&](auto element) {
        using T = decltype(element);
        bias_gradients<T><<<blocks_of(dy.rows * routes.per_token), block_threads, 0, stream>>>(
            pointer<const T>(dy), dy.ld, dy.cols, bias, d_weights, routes);
        return cudaGetLastError();
    });
}

cudaError_t route_backward(cudaStream_t stream, const Matrix& d_logits, const float* d_weights,
                           const Routes& routes, const RouterRule& rule) {
    if (d_logits.rows == 0) return cudaSuccess;
    return with_type(d_logits.type, [&](auto element) {
        using T = decltype(element);
        to_logits<T><<<blocks_of(d_logits.rows), block_threads, 0, stream>>>(
            pointer<T>(d_logits), d_logits.ld, d_weights, routes, rule);
        return cudaGetLastError();
    });
}

}  // namespace loratrain::kernels
