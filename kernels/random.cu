#include "random.h"

#include "dropout.cuh"
#include "launch.cuh"

namespace loratrain::kernels {

namespace {

/// N = wide: a block of eight columns; N = 1: one column of its block.
template <class T, int N>
struct RandomBody {
    T* target;
    std::int64_t ld;
    std::uint64_t key;
    float center, half_width;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const uint4 block = philox4x32(
            make_uint4(static_cast<std::uint32_t>(col / wide), static_cast<std::uint32_t>(row),
                       static_cast<std::uint32_t>(row >> 32), 0),
            key);
        const std::uint32_t words[4] = {block.x, block.y, block.z, block.w};
        const auto first = static_cast<unsigned>(col % wide);
        float v[N];
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            const std::uint32_t bits =
                words[(first + i) / 2] >> (16U * ((first + i) % 2)) & 0xffffU;
            const float unit = (static_cast<float>(bits) + 0.5F) / 32768.0F - 1.0F;
            v[i] = __fmaf_rn(half_width, unit, center);
        }
        store<N>(target + row * ld + col, v);
    }
};

/// N = 4: a block of four neighbours in the stream; N = 1: one of them.
template <int N>
struct UniformBody {
    DrawUniformParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const auto place = static_cast<std::uint64_t>(p.first + row * p.stride + col);
        const uint4 block = philox4x32(make_uint4(static_cast<std::uint32_t>(place >> 2U),
                                                  static_cast<std::uint32_t>(place >> 34U), 0, 0),
                                       p.key);
        const std::uint32_t words[4] = {block.x, block.y, block.z, block.w};
        const auto first = static_cast<unsigned>(place & 3U);
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            const float u = static_cast<float>(words[(first + i) & 3U] >> 8U) * 0x1p-24F;
            p.values[row * p.cols + col + i] = (2.0F * u - 1.0F) * p.bound;
        }
    }
};

template <class T, int N>
struct NoiseBody {
    AddNoiseParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const uint4 of_row = dropout_row(p.key, static_cast<std::uint32_t>(p.sample_ids[row]),
                                         static_cast<std::uint32_t>(p.positions[row]));
        const uint4 of_column =
            dropout_column(p.key, p.step, static_cast<std::uint32_t>(col / wide));
        const uint4 block = dropout_bits(p.key, of_row, of_column);
        const std::uint32_t words[4] = {block.x, block.y, block.z, block.w};
        const auto first = static_cast<unsigned>(col % wide);
        T* x = static_cast<T*>(p.x.data) + row * p.x.ld + col;
        float v[N];
        load<N>(x, v);
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            const std::uint32_t bits =
                words[(first + i) / 2] >> (16U * ((first + i) % 2)) & 0x7fffU;
            const float unit = (static_cast<float>(bits) + 0.5F) / 16384.0F - 1.0F;
            v[i] += p.amplitude * unit;
        }
        store<N>(x, v);
    }
};

}  // namespace

cudaError_t fill_random(cudaStream_t stream, const Matrix& target, std::uint64_t key, float center,
                        float half_width) {
    return with_type(target.type, [&](auto element) {
        using T = decltype(element);
        T* data = pointer<T>(target);
        if (all_wide({&target})) {
            return launch_elements<wide>(
                stream, target.rows, target.cols,
                RandomBody<T, wide>{data, target.ld, key, center, half_width});
        }
        return launch_elements<1>(stream, target.rows, target.cols,
                                  RandomBody<T, 1>{data, target.ld, key, center, half_width});
    });
}

cudaError_t draw_uniform(cudaStream_t stream, const DrawUniformParams& params) {
    const bool in_blocks = params.first % 4 == 0 && params.stride % 4 == 0 && params.cols % 4 == 0;
    return in_blocks ? launch_elements<4>(stream, params.rows, params.cols, UniformBody<4>{params})
                     : launch_elements<1>(stream, params.rows, params.cols, UniformBody<1>{params});
}

cudaError_t add_noise(cudaStream_t stream, const AddNoiseParams& params) {
    return with_type(params.x.type, [&](auto element) {
        using T = decltype(element);
        const std::int64_t rows = params.x.rows;
        const std::int64_t cols = params.x.cols;
        return all_wide({&params.x})
                   ? launch_elements<wide>(stream, rows, cols, NoiseBody<T, wide>{params})
                   : launch_elements<1>(stream, rows, cols, NoiseBody<T, 1>{params});
    });
}

}  // namespace loratrain::kernels
