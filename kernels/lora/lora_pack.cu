#include "kernels/launch.cuh"
#include "lora.h"

namespace loratrain::kernels {

namespace {

__device__ __forceinline__ const LoraSlotEntry* owner_of(const LoraSlotEntry* slots, int count,
                                                         std::int64_t column) {
    for (int i = 0; i < count; ++i) {
        if (column >= slots[i].column && column < slots[i].column + slots[i].rank) return slots + i;
    }
    return nullptr;
}

/// What is too large for T also becomes 0.
template <class T>
__device__ __forceinline__ T finite_or_zero(float x) {
    const T value = from_float<T>(x);
    return isfinite(to_float(value)) ? value : from_float<T>(0.0F);
}

template <class T>
struct PackB {
    const LoraSlotEntry* slots;
    int slot_count;
    T* pad;
    std::int64_t ld;
    __device__ void operator()(std::int64_t n, std::int64_t col) const {
        const LoraSlotEntry* slot = owner_of(slots, slot_count, col);
        pad[n * ld + col] = finite_or_zero<T>(
            slot == nullptr ? 0.0F : slot->b[n * slot->rank + col - slot->column]);
    }
};

template <class T>
struct PackA {
    const LoraSlotEntry* slots;
    int slot_count;
    T* pad;
    std::int64_t ld, k;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const LoraSlotEntry* slot = owner_of(slots, slot_count, row);
        pad[row * ld + col] =
            finite_or_zero<T>(slot == nullptr ? 0.0F : slot->a[(row - slot->column) * k + col]);
    }
};

}  // namespace

cudaError_t lora_pack(cudaStream_t stream, const LoraPackParams& p) {
    return with_type(p.b_pad.type, [&](auto element) {
        using T = decltype(element);
        const cudaError_t status =
            launch_elements<1>(stream, p.b_pad.rows, p.b_pad.cols,
                               PackB<T>{p.slots, p.slot_count, pointer<T>(p.b_pad), p.b_pad.ld});
        if (status != cudaSuccess) return status;
        return launch_elements<1>(
            stream, p.a_pad.rows, p.a_pad.cols,
            PackA<T>{p.slots, p.slot_count, pointer<T>(p.a_pad), p.a_pad.ld, p.a_pad.cols});
    });
}

}  // namespace loratrain::kernels
