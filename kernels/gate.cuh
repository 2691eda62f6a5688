#pragma once

#include "activations.h"
#include "device_math.cuh"

namespace loratrain::kernels {

/// Functions of a gate for one number, for activations of type T.
struct Silu {
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
struct GeluTanh {
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
struct Sigmoid {
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

template <class T, class Function, int N>
__device__ __forceinline__ void product(float (&g)[N], const float (&u)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] = Function::template value<T>(g[i]) * u[i];
}

/// Replaces gate, up, dh by dgate, h, dup.
template <class T, class Function, int N>
__device__ __forceinline__ void gradients(float (&g)[N], float (&u)[N], float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        float value = 0.0F;
        g[i] = Function::template gradient<T>(g[i], d[i] * u[i], value);
        d[i] *= value;
        u[i] *= value;
    }
}

/// Calls launch(Silu{}) or launch of the other function of an MLP, as `Gate` says.
template <class Launch>
cudaError_t with_function(Gate function, const Launch& launch) {
    return function == Gate::silu ? launch(Silu{}) : launch(GeluTanh{});
}
/// Of any function.
template <class Launch>
cudaError_t with_any_function(Gate function, const Launch& launch) {
    return function == Gate::sigmoid ? launch(Sigmoid{}) : with_function(function, launch);
}

}  // namespace loratrain::kernels
