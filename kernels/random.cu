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

}  // namespace loratrain::kernels
