#pragma once

#include <type_traits>

#include "device_math.cuh"

namespace loratrain::kernels {

/// N columns of a row as they lie in memory, 4 or more, loaded and stored at once: what is loaded
/// ahead takes no more registers than that. Their address is a multiple of 16 bytes, or of their 8.
template <class T, int N>
struct StoredColumns {
    static_assert(N % 4 == 0);
    using Word = std::conditional_t<N * sizeof(T) % 16 == 0, uint4, uint2>;
    static constexpr int words = static_cast<int>(N * sizeof(T) / sizeof(Word));
    Word held[words];

    __device__ __forceinline__ void take(const T* from) {
#pragma unroll
        for (int i = 0; i < words; ++i) held[i] = reinterpret_cast<const Word*>(from)[i];
    }
    __device__ __forceinline__ void give(T* to) const {
#pragma unroll
        for (int i = 0; i < words; ++i) reinterpret_cast<Word*>(to)[i] = held[i];
    }
    __device__ __forceinline__ void values(float (&v)[N]) const {
        if constexpr (sizeof(Word) == 16) {
            load<N>(reinterpret_cast<const T*>(held), v);
        } else {
            v[0] = low_half(held[0].x);
            v[1] = high_half(held[0].x);
            v[2] = low_half(held[0].y);
            v[3] = high_half(held[0].y);
        }
    }
    __device__ __forceinline__ void round(const float (&v)[N]) {
        if constexpr (sizeof(Word) == 16) {
            store<N>(reinterpret_cast<T*>(held), v);
        } else {
            held[0] = make_uint2(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]));
        }
    }
};
template <class T>
struct StoredColumns<T, 1> {
    T held;

    __device__ __forceinline__ void take(const T* from) { held = *from; }
    __device__ __forceinline__ void give(T* to) const { *to = held; }
    __device__ __forceinline__ void values(float (&v)[1]) const { v[0] = to_float(held); }
    __device__ __forceinline__ void round(const float (&v)[1]) { held = from_float<T>(v[0]); }
};

}  // namespace loratrain::kernels
