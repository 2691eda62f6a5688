#pragma once

#include "activations.h"
#include "device_math.cuh"

namespace loratrain::kernels {

/// What the gate's function is multiplied by, and what becomes of up's gradient.
struct PlainUp {
    static __device__ __forceinline__ float up(float u) { return u; }
    static __device__ __forceinline__ void clamp_gradient(float /*u*/, float& /*d*/) {}
};

/// Functions of a gate for one number, for activations of type T.
struct Silu : PlainUp {
    template <class T>
    static __device__ __forceinline__ float value(float x) {
        return x * sigmoid<T>(x);
    }
    /// `factor` times the derivative.
    template <class T>
    static __device__ __forceinline__ float gradient(float x, float factor, float& value) {
        const float s = sigmoid<T>(x);
        value = x * s;
        return factor * (s + value * (1.0F - s));
    }
};

/// x / 2 (1 + tanh u) = x sigmoid(2 u).
struct GeluTanh : PlainUp {
    static constexpr float twice_root = 1.59576912160573F;  // 2 sqrt(2 / pi)
    static constexpr float cubic = 0.044715F;
    template <class T>
    static __device__ __forceinline__ float value(float x) {
        return x * sigmoid<T>(twice_root * (x + cubic * x * x * x));
    }
    template <class T>
    static __device__ __forceinline__ float gradient(float x, float factor, float& value) {
        const float s = sigmoid<T>(twice_root * (x + cubic * x * x * x));
        value = x * s;
        return factor * (s + value * (1.0F - s) * twice_root * (1.0F + 3.0F * cubic * x * x));
    }
};

/// Of an attention's output gate.
struct Sigmoid : PlainUp {
    template <class T>
    static __device__ __forceinline__ float value(float x) {
        return sigmoid<T>(x);
    }
    template <class T>
    static __device__ __forceinline__ float gradient(float x, float factor, float& value) {
        value = sigmoid<T>(x);
        return factor * value * (1.0F - value);
    }
};

/// Of experts. A clamp's slope is 1 at its ends, as in torch; NaN stays NaN.
struct ClampedSwiglu {
    static __device__ __forceinline__ float at_most(float x) {
        return x > swiglu_limit ? swiglu_limit : x;
    }
    static __device__ __forceinline__ float up(float u) {
        return (u < -swiglu_limit ? -swiglu_limit : at_most(u)) + 1.0F;
    }
    static __device__ __forceinline__ void clamp_gradient(float u, float& d) {
        if (fabsf(u) > swiglu_limit) d = 0.0F;
    }
    template <class T>
    static __device__ __forceinline__ float value(float x) {
        const float m = at_most(x);
        return m * sigmoid<T>(swiglu_alpha * m);
    }
    template <class T>
    static __device__ __forceinline__ float gradient(float x, float factor, float& value) {
        const float m = at_most(x);
        const float s = sigmoid<T>(swiglu_alpha * m);
        value = m * s;
        return x > swiglu_limit ? 0.0F : factor * (s + value * (1.0F - s) * swiglu_alpha);
    }
};

template <class T, class Function, int N>
__device__ __forceinline__ void product(float (&g)[N], const float (&u)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] = Function::template value<T>(g[i]) * Function::up(u[i]);
}

/// Replaces gate, up, dh by dgate, h, dup.
template <class T, class Function, int N>
__device__ __forceinline__ void gradients(float (&g)[N], float (&u)[N], float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        float value = 0.0F;
        g[i] = Function::template gradient<T>(g[i], d[i] * Function::up(u[i]), value);
        d[i] *= value;
        Function::clamp_gradient(u[i], d[i]);
        u[i] = Function::up(u[i]);
        u[i] *= value;
    }
}

/// Calls launch(Silu{}) or launch of the other function of a dense MLP, as `Gate` says.
template <class Launch>
cudaError_t with_function(Gate function, const Launch& launch) {
    return function == Gate::silu ? launch(Silu{}) : launch(GeluTanh{});
}
/// Of a function of experts.
template <class Launch>
cudaError_t with_expert_function(Gate function, const Launch& launch) {
    return function == Gate::clamped_swiglu ? launch(ClampedSwiglu{})
                                            : with_function(function, launch);
}
/// Of any function.
template <class Launch>
cudaError_t with_any_function(Gate function, const Launch& launch) {
    return function == Gate::sigmoid ? launch(Sigmoid{}) : with_expert_function(function, launch);
}

}  // namespace loratrain::kernels
