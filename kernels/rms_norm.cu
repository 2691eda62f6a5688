#include "rms_norm.h"

#include "quantize.cuh"

namespace loratrain::kernels {

namespace {

/// One group of one row, handled by `lanes` threads: a warp or the whole block.
struct Place {
    std::int64_t row;
    std::int64_t first;
    int lane;
    bool valid;
};

template <int lanes>
__device__ __forceinline__ Place place_of(std::int64_t rows, std::int64_t groups,
                                          std::int64_t width) {
    constexpr int per_block = block_threads / lanes;
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * per_block + threadIdx.x / lanes;
    return {i / groups, i % groups * width, static_cast<int>(threadIdx.x % lanes),
            i < rows * groups};
}

/// Of a group's threads, `count` sums at once. `scratch`: used for nothing else.
template <int lanes, int count>
__device__ __forceinline__ void add_up(float (&sums)[count],
                                       float (&scratch)[block_threads / 32][count]) {
#pragma unroll
    for (float& sum : sums) sum = warp_sum(sum);
    if constexpr (lanes != 32) {
#pragma unroll
        for (int i = 0; i < count; ++i) {
            if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32][i] = sums[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < count; ++i) {
            sums[i] = scratch[0][i];
#pragma unroll
            for (int warp = 1; warp < lanes / 32; ++warp) sums[i] += scratch[warp][i];
        }
    }
}

/// Null where there is none.
template <class T>
__device__ __forceinline__ const T* added_at(const RmsNormParams& p, const Place& at) {
    if (p.added.data == nullptr) return nullptr;
    return static_cast<const T*>(p.added.data) + at.row * p.added.ld + at.first;
}

template <class T, int lanes>
__global__ void __launch_bounds__(block_threads)
    forward_kernel(RmsNormParams p, std::int64_t width) {
    __shared__ float scratch[block_threads / 32][1];
    const Place at = place_of<lanes>(p.x.rows, p.groups, width);
    wait_for_kernel_before();
    if (!at.valid) return;
    const T* x = static_cast<const T*>(p.x.data) + at.row * p.x.ld + at.first;
    T* y = static_cast<T*>(p.y.data) + at.row * p.y.ld + at.first;
    const T* weight = static_cast<const T*>(p.weight);
    const T* added = added_at<T>(p, at);
    float sum[1] = {};
    for (std::int64_t j = at.lane; j < width; j += lanes) sum[0] += to_float(x[j]) * to_float(x[j]);
    add_up<lanes>(sum, scratch);
    const float inverse = 1.0F / sqrtf(sum[0] / static_cast<float>(width) + p.eps);
    for (std::int64_t j = at.lane; j < width; j += lanes) {
        float v = to_float(x[j]) * (inverse * (to_float(weight[j]) + p.weight_offset));
        if (added != nullptr) v += to_float(added[j]);
        y[j] = from_float<T>(v);
    }
}

/// Reads a row once. `weight`, `width` and all strides are for wide loads; width is at most
/// lanes * wide * passes.
template <class T, int lanes, int passes>
__global__ void __launch_bounds__(block_threads)
    forward_held_kernel(RmsNormParams p, std::int64_t width) {
    __shared__ float scratch[block_threads / 32][1];
    __shared__ std::uint32_t largest[block_threads / 32];
    using Row = HeldRow<T, lanes, passes>;
    const Place at = place_of<lanes>(p.x.rows, p.groups, width);
    wait_for_kernel_before();
    if (!at.valid) return;
    const T* x = static_cast<const T*>(p.x.data) + at.row * p.x.ld + at.first;
    T* y = static_cast<T*>(p.y.data) + at.row * p.y.ld + at.first;
    const T* weight = static_cast<const T*>(p.weight);
    const T* added = added_at<T>(p, at);
    Row held;
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        if (Row::column(pass) < width) held.take(pass, x + Row::column(pass));
    }
    float sum[1] = {};
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        if (Row::column(pass) >= width) break;
        float v[wide];
        held.values(pass, nullptr, v);
#pragma unroll
        for (int i = 0; i < wide; ++i) sum[0] += v[i] * v[i];
    }
    add_up<lanes>(sum, scratch);
    const float inverse = 1.0F / sqrtf(sum[0] / static_cast<float>(width) + p.eps);
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = Row::column(pass);
        if (col >= width) break;
        float v[wide];
        float w[wide];
        held.values(pass, nullptr, v);
        load<wide>(weight + col, w);
#pragma unroll
        for (int i = 0; i < wide; ++i) v[i] *= inverse * (w[i] + p.weight_offset);
        if (added != nullptr) {
            load<wide>(added + col, w);
#pragma unroll
            for (int i = 0; i < wide; ++i) v[i] += w[i];
        }
        held.take(pass, v);
        held.give(pass, y + col);
    }
    if (p.codes.codes != nullptr) held.write_codes(width, nullptr, p.codes, at.row, largest);
}

/// What is to be scaled of a row of one group: an element for each of its threads, which is read
/// before the sums are known, and what there is more behind these.
template <class T, int lanes>
class ScaledRow {
  public:
    __device__ __forceinline__ ScaledRow(const RmsNormBackwardParams& p, const Place& at)
        : lane_(at.lane), cols_(p.scaled.data == nullptr ? 0 : static_cast<int>(p.scaled.cols)) {
        row_ = static_cast<T*>(p.scaled.data) + at.row * p.scaled.ld;
        if (lane_ < cols_) first_ = row_[lane_];
    }
    __device__ __forceinline__ void multiply(float factor) {
        if (lane_ < cols_) row_[lane_] = from_float<T>(to_float(first_) * factor);
#pragma unroll 1
        for (int j = lane_ + lanes; j < cols_; j += lanes) {
            row_[j] = from_float<T>(to_float(row_[j]) * factor);
        }
    }

  private:
    T* row_;
    T first_{};
    int lane_;
    int cols_;
};

template <class T, int lanes>
__global__ void __launch_bounds__(block_threads)
    backward_kernel(RmsNormBackwardParams p, std::int64_t width) {
    __shared__ float scratch[block_threads / 32][2];
    const Place at = place_of<lanes>(p.x.rows, p.groups, width);
    wait_for_kernel_before();
    if (!at.valid) return;
    const T* x = static_cast<const T*>(p.x.data) + at.row * p.x.ld + at.first;
    const T* dy = static_cast<const T*>(p.dy.data) + at.row * p.dy.ld + at.first;
    T* dx = static_cast<T*>(p.dx.data) + at.row * p.dx.ld + at.first;
    const T* weight = static_cast<const T*>(p.weight);
    ScaledRow<T, lanes> scaled(p, at);
    float sums[2] = {};  // of x x and of x weight dy
    for (std::int64_t j = at.lane; j < width; j += lanes) {
        const float v = to_float(x[j]);
        sums[0] += v * v;
        sums[1] += v * (to_float(weight[j]) + p.weight_offset) * to_float(dy[j]);
    }
    add_up<lanes>(sums, scratch);
    const auto count = static_cast<float>(width);
    const float inverse = 1.0F / sqrtf(sums[0] / count + p.eps);
    const float along = sums[1] * inverse * inverse / count;
    scaled.multiply(inverse);
    for (std::int64_t j = at.lane; j < width; j += lanes) {
        const float w = to_float(weight[j]) + p.weight_offset;
        const float v = inverse * (w * to_float(dy[j]) - to_float(x[j]) * along);
        dx[j] = from_float<T>(p.accumulate ? v + to_float(dx[j]) : v);
    }
}

/// Reads x and dy once; conditions as forward_held_kernel.
template <class T, int lanes, int passes>
__global__ void __launch_bounds__(block_threads)
    backward_held_kernel(RmsNormBackwardParams p, std::int64_t width) {
    __shared__ float scratch[block_threads / 32][2];
    using Row = HeldRow<T, lanes, passes>;
    const Place at = place_of<lanes>(p.x.rows, p.groups, width);
    wait_for_kernel_before();
    if (!at.valid) return;
    const T* x = static_cast<const T*>(p.x.data) + at.row * p.x.ld + at.first;
    const T* dy = static_cast<const T*>(p.dy.data) + at.row * p.dy.ld + at.first;
    T* dx = static_cast<T*>(p.dx.data) + at.row * p.dx.ld + at.first;
    const T* weight = static_cast<const T*>(p.weight);
    Row held_x;
    Row held_dy;
    Row before;  // read at once with the others: what comes later waits for the sums
    ScaledRow<T, lanes> scaled(p, at);
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        if (Row::column(pass) >= width) break;
        held_x.take(pass, x + Row::column(pass));
        held_dy.take(pass, dy + Row::column(pass));
        if (p.accumulate) before.take(pass, dx + Row::column(pass));
    }
    float sums[2] = {};  // of x x and of x weight dy
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        if (Row::column(pass) >= width) break;
        float v[wide];
        float w[wide];
        float d[wide];
        held_x.values(pass, nullptr, v);
        load<wide>(weight + Row::column(pass), w);
        held_dy.values(pass, nullptr, d);
#pragma unroll
        for (int i = 0; i < wide; ++i) {
            sums[0] += v[i] * v[i];
            sums[1] += v[i] * (w[i] + p.weight_offset) * d[i];
        }
    }
    add_up<lanes>(sums, scratch);
    const auto count = static_cast<float>(width);
    const float inverse = 1.0F / sqrtf(sums[0] / count + p.eps);
    const float along = sums[1] * inverse * inverse / count;
    scaled.multiply(inverse);
#pragma unroll
    for (int pass = 0; pass < passes; ++pass) {
        const std::int64_t col = Row::column(pass);
        if (col >= width) break;
        float v[wide];
        float w[wide];
        float d[wide];
        held_x.values(pass, nullptr, v);
        load<wide>(weight + col, w);
        held_dy.values(pass, nullptr, d);
#pragma unroll
        for (int i = 0; i < wide; ++i) {
            d[i] = inverse * ((w[i] + p.weight_offset) * d[i] - v[i] * along);
        }
        if (p.accumulate) {
            float b[wide];
            before.values(pass, nullptr, b);
#pragma unroll
            for (int i = 0; i < wide; ++i) d[i] += b[i];
        }
        store<wide>(dx + col, d);
    }
}

constexpr std::int64_t widest_of_a_warp = 512;  ///< that is not held
constexpr std::int64_t widest_held = 8192;

template <int lanes>
unsigned blocks_for(std::int64_t row_groups) {
    constexpr std::int64_t per_block = block_threads / lanes;
    return static_cast<unsigned>((row_groups + per_block - 1) / per_block);
}

template <int lanes_, int passes_>
struct Shares {
    static constexpr int lanes = lanes_;
    static constexpr int passes = passes_;
};

/// launch(Shares): how many threads hold how much of a row of `width`, at most widest_held.
template <class Launch>
cudaError_t with_shares(std::int64_t width, const Launch& launch) {
    if (width <= 256) return launch(Shares<32, 1>{});
    if (width <= 512) return launch(Shares<32, 2>{});
    if (width <= 1024) return launch(Shares<32, 4>{});
    if (width <= 2048) return launch(Shares<block_threads, 1>{});
    if (width <= 4096) return launch(Shares<block_threads, 2>{});
    return launch(Shares<block_threads, 4>{});
}

/// The kernels of a norm and of its gradient, told apart by their parameters.
template <class T, int lanes, int passes>
constexpr auto held_kernel(const RmsNormParams& /*p*/) {
    return forward_held_kernel<T, lanes, passes>;
}
template <class T, int lanes, int passes>
constexpr auto held_kernel(const RmsNormBackwardParams& /*p*/) {
    return backward_held_kernel<T, lanes, passes>;
}
template <class T, int lanes>
constexpr auto plain_kernel(const RmsNormParams& /*p*/) {
    return forward_kernel<T, lanes>;
}
template <class T, int lanes>
constexpr auto plain_kernel(const RmsNormBackwardParams& /*p*/) {
    return backward_kernel<T, lanes>;
}

template <class T, class Params>
cudaError_t launch_held(cudaStream_t stream, const Params& p, std::int64_t width) {
    return with_shares(width, [&](auto shares) {
        constexpr int lanes = decltype(shares)::lanes;
        return launch_early(stream, held_kernel<T, lanes, decltype(shares)::passes>(p),
                            blocks_for<lanes>(p.x.rows * p.groups), block_threads, 0, p, width);
    });
}

template <class T, int lanes, class Params>
cudaError_t launch_plain(cudaStream_t stream, const Params& p, std::int64_t width) {
    return launch_early(stream, plain_kernel<T, lanes>(p), blocks_for<lanes>(p.x.rows * p.groups),
                        block_threads, 0, p, width);
}

template <class Params>
bool is_held(const Params& p, bool is_wide) {
    const std::int64_t width = p.x.cols / p.groups;
    return is_wide && aligned_16(p.weight) && width % wide == 0 && width <= widest_held;
}

template <class T, class Params>
cudaError_t launch(cudaStream_t stream, const Params& p, bool is_wide) {
    const std::int64_t width = p.x.cols / p.groups;
    if (is_held(p, is_wide)) return launch_held<T>(stream, p, width);
    return width <= widest_of_a_warp ? launch_plain<T, 32>(stream, p, width)
                                     : launch_plain<T, block_threads>(stream, p, width);
}

/// Whether launch makes them beside y.
bool makes_codes(const RmsNormParams& p) {
    return p.groups == 1 && p.x.cols <= widest_held && all_wide({&p.x, &p.y}) &&
           aligned_16(p.weight) && takes_wide_codes(p.codes, nullptr);
}

}  // namespace

cudaError_t rms_norm(cudaStream_t stream, const RmsNormParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    const bool codes_apart = p.codes.codes != nullptr && !makes_codes(p);
    RmsNormParams norm = p;
    if (codes_apart) norm.codes = {};
    const Matrix& added = p.added.data == nullptr ? p.x : p.added;
    const cudaError_t error = with_type(p.x.type, [&](auto element) {
        return launch<decltype(element)>(stream, norm, all_wide({&p.x, &p.y, &added}));
    });
    return error != cudaSuccess || !codes_apart ? error
                                                : quantize_rows(stream, p.y, nullptr, p.codes);
}

cudaError_t rms_norm_backward(cudaStream_t stream, const RmsNormBackwardParams& p) {
    if (p.x.rows == 0 || p.x.cols == 0) return cudaSuccess;
    return with_type(p.x.type, [&](auto element) {
        return launch<decltype(element)>(stream, p, all_wide({&p.x, &p.dy, &p.dx}));
    });
}

}  // namespace loratrain::kernels
