#include "activations.h"

#include "launch.cuh"
#include "quantize.cuh"

namespace loratrain::kernels {

namespace {

constexpr float largest_negative = -1e-6F;

/// e^x - 1 - x of x <= 0: by its series near 0, where the difference would lose its digits.
__device__ __forceinline__ float bend(float x) {
    if (x <= -1.0F) return expf(x) - 1.0F - x;
    float p = 1.0F / 39916800.0F;
    p = fmaf(p, x, 1.0F / 3628800.0F);
    p = fmaf(p, x, 1.0F / 362880.0F);
    p = fmaf(p, x, 1.0F / 40320.0F);
    p = fmaf(p, x, 1.0F / 5040.0F);
    p = fmaf(p, x, 1.0F / 720.0F);
    p = fmaf(p, x, 1.0F / 120.0F);
    p = fmaf(p, x, 1.0F / 24.0F);
    p = fmaf(p, x, 1.0F / 6.0F);
    p = fmaf(p, x, 0.5F);
    return p * x * x;
}

struct Function {
    float positive;
    float negative;
    float linear;

    __device__ __forceinline__ float value(float x) const {
        if (x > 0.0F) return fmaf(positive * x, x, linear * x);
        const float bounded = fminf(x, largest_negative);
        return fmaf(negative, bend(bounded) + (bounded - x), linear * x);
    }
    __device__ __forceinline__ float slope(float x) const {
        if (x > 0.0F) return fmaf(2.0F * positive, x, linear);
        const float e = x < largest_negative ? bend(x) + x : -1.0F;
        return fmaf(negative, e, linear);
    }
};

template <class T, int N>
struct ForwardBody {
    const T* x;
    T* h;
    Function f;
    std::int64_t x_ld, h_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        load<N>(x + row * x_ld + col, v);
#pragma unroll
        for (int i = 0; i < N; ++i) v[i] = f.value(v[i]);
        store<N>(h + row * h_ld + col, v);
    }
};

template <class T, int N>
struct BackwardBody {
    const T* x;
    const T* dh;
    T* dx;
    T* h;
    Function f;
    std::int64_t x_ld, dh_ld, dx_ld, h_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float v[N];
        float d[N];
        load<N>(x + row * x_ld + col, v);
        load<N>(dh + row * dh_ld + col, d);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            d[i] *= f.slope(v[i]);
            v[i] = f.value(v[i]);
        }
        store<N>(dx + row * dx_ld + col, d);
        if (h != nullptr) store<N>(h + row * h_ld + col, v);
    }
};

template <class T, int N>
cudaError_t launch_forward(cudaStream_t stream, const XieluParams& p) {
    return launch_elements<N>(stream, p.x.rows, p.x.cols,
                              ForwardBody<T, N>{pointer<const T>(p.x),
                                                pointer<T>(p.h),
                                                {p.positive, p.negative, p.linear},
                                                p.x.ld,
                                                p.h.ld});
}

template <class T, int N>
cudaError_t launch_backward(cudaStream_t stream, const XieluParams& p) {
    return launch_elements<N>(stream, p.x.rows, p.x.cols,
                              BackwardBody<T, N>{pointer<const T>(p.x),
                                                 pointer<const T>(p.dh),
                                                 pointer<T>(p.dx),
                                                 pointer<T>(p.h),
                                                 {p.positive, p.negative, p.linear},
                                                 p.x.ld,
                                                 p.dh.ld,
                                                 p.dx.ld,
                                                 p.h.ld});
}

}  // namespace

cudaError_t xielu(cudaStream_t stream, const XieluParams& p) {
    const cudaError_t error = with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&p.x, &p.h}) ? launch_forward<T, wide>(stream, p)
                                      : launch_forward<T, 1>(stream, p);
    });
    if (error != cudaSuccess || p.codes.codes == nullptr) return error;
    return quantize_rows(stream, p.h, nullptr, p.codes);
}

cudaError_t xielu_backward(cudaStream_t stream, const XieluParams& p) {
    const Matrix& h = p.h.data == nullptr ? p.dh : p.h;
    const cudaError_t error = with_type(p.x.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&p.x, &p.dh, &p.dx, &h}) ? launch_backward<T, wide>(stream, p)
                                                  : launch_backward<T, 1>(stream, p);
    });
    if (error != cudaSuccess || p.codes.codes == nullptr) return error;
    return quantize_rows(stream, p.dx, p.column_scales, p.codes);
}

}  // namespace loratrain::kernels
