#include "launch.cuh"
#include "swiglu.h"

namespace loratrain::kernels {

namespace {

template <class T, int N>
struct ForwardBody {
    const T* gate;
    const T* up;
    T* h;
    std::int64_t gate_ld, up_ld, h_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float g[N];
        float u[N];
        load<N>(gate + row * gate_ld + col, g);
        load<N>(up + row * up_ld + col, u);
#pragma unroll
        for (int i = 0; i < N; ++i) g[i] = g[i] * sigmoid<T>(g[i]) * u[i];
        store<N>(h + row * h_ld + col, g);
    }
};

template <class T, int N>
struct BackwardBody {
    const T* gate;
    const T* up;
    const T* dh;
    T* dgate;
    T* dup;
    T* h;
    std::int64_t gate_ld, up_ld, dh_ld, dgate_ld, dup_ld, h_ld;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        float g[N];
        float u[N];
        float d[N];
        load<N>(gate + row * gate_ld + col, g);
        load<N>(up + row * up_ld + col, u);
        load<N>(dh + row * dh_ld + col, d);
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const float s = sigmoid<T>(g[i]);
            const float silu = g[i] * s;
            g[i] = d[i] * u[i] * (s + silu * (1.0F - s));
            d[i] *= silu;
            u[i] *= silu;
        }
        store<N>(dgate + row * dgate_ld + col, g);
        store<N>(dup + row * dup_ld + col, d);
        if (h != nullptr) store<N>(h + row * h_ld + col, u);
    }
};

template <class T, int N>
cudaError_t launch_backward(cudaStream_t stream, const SwiGluBackwardParams& p) {
    return launch_elements<N>(
        stream, p.gate.rows, p.gate.cols,
        BackwardBody<T, N>{pointer<const T>(p.gate), pointer<const T>(p.up), pointer<const T>(p.dh),
                           pointer<T>(p.dgate), pointer<T>(p.dup), pointer<T>(p.h), p.gate.ld,
                           p.up.ld, p.dh.ld, p.dgate.ld, p.dup.ld, p.h.ld});
}

template <class T, int N>
cudaError_t launch_forward(cudaStream_t stream, const Matrix& gate, const Matrix& up,
                           const Matrix& h) {
    return launch_elements<N>(stream, gate.rows, gate.cols,
                              ForwardBody<T, N>{pointer<const T>(gate), pointer<const T>(up),
                                                pointer<T>(h), gate.ld, up.ld, h.ld});
}

}  // namespace

cudaError_t swiglu(cudaStream_t stream, const Matrix& gate, const Matrix& up, const Matrix& h) {
    return with_type(h.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&gate, &up, &h}) ? launch_forward<T, wide>(stream, gate, up, h)
                                          : launch_forward<T, 1>(stream, gate, up, h);
    });
}

cudaError_t swiglu_backward(cudaStream_t stream, const SwiGluBackwardParams& p) {
    const Matrix& h = p.h.data == nullptr ? p.dh : p.h;
    return with_type(p.gate.type, [&](auto element) {
        using T = decltype(element);
        return all_wide({&p.gate, &p.up, &p.dh, &p.dgate, &p.dup, &h})
                   ? launch_backward<T, wide>(stream, p)
                   : launch_backward<T, 1>(stream, p);
    });
}

}  // namespace loratrain::kernels
