#include "delta.h"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace {

/// log(1 + e^x)
__device__ __forceinline__ float softplus(float x) {
    return fmaxf(x, 0.0F) + log1pf(expf(-fabsf(x)));
}

template <class T>
struct GatesBody {
    DeltaGatesParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const float a = to_float(static_cast<const T*>(p.a.data)[row * p.a.ld + col]);
        const float b = to_float(static_cast<const T*>(p.b.data)[row * p.b.ld + col]);
        const std::int64_t at = row * p.a.cols + col;
        p.g[at] = -expf(p.a_log[col]) * softplus(a + p.dt_bias[col]);
        p.beta[at] = sigmoid<float>(b);
    }
};

template <class T>
struct GatesBackwardBody {
    DeltaGatesBackwardParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const DeltaGatesParams& f = p.forward;
        const float a = to_float(static_cast<const T*>(f.a.data)[row * f.a.ld + col]);
        const float b = to_float(static_cast<const T*>(f.b.data)[row * f.b.ld + col]);
        const std::int64_t at = row * f.a.cols + col;
        const float beta = sigmoid<float>(b);
        static_cast<T*>(p.da.data)[row * p.da.ld + col] =
            from_float<T>(-p.d_g[at] * expf(f.a_log[col]) * sigmoid<float>(a + f.dt_bias[col]));
        static_cast<T*>(p.db.data)[row * p.db.ld + col] =
            from_float<T>(p.d_beta[at] * beta * (1.0F - beta));
    }
};

}  // namespace

cudaError_t delta_gates(cudaStream_t stream, const DeltaGatesParams& p) {
    return with_type(p.a.type, [&](auto element) {
        return launch_elements<1>(stream, p.a.rows, p.a.cols, GatesBody<decltype(element)>{p});
    });
}

cudaError_t delta_gates_backward(cudaStream_t stream, const DeltaGatesBackwardParams& p) {
    return with_type(p.forward.a.type, [&](auto element) {
        return launch_elements<1>(stream, p.forward.a.rows, p.forward.a.cols,
                                  GatesBackwardBody<decltype(element)>{p});
    });
}

}  // namespace loratrain::kernels
