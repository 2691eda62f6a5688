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

/// An element of b_pad [N, R] or of a_pad [R, K], which is counted as K more rows of R elements.
template <class T>
struct Pack {
    LoraPackParams p;
    __device__ void operator()(std::int64_t row, std::int64_t col) const {
        const std::int64_t n = p.b_pad.rows;
        if (row < n) {
            const LoraSlotEntry* slot = owner_of(p.slots, p.slot_count, col);
            pointer_to(p.b_pad, row, col) = finite_or_zero<T>(
                slot == nullptr ? 0.0F : slot->b[row * slot->rank + col - slot->column]);
            return;
        }
        const std::int64_t k = p.a_pad.cols;
        const std::int64_t i = (row - n) * p.b_pad.cols + col;
        const std::int64_t rank = i / k;
        const LoraSlotEntry* slot = owner_of(p.slots, p.slot_count, rank);
        pointer_to(p.a_pad, rank, i % k) =
            finite_or_zero<T>(slot == nullptr ? 0.0F : slot->a[(rank - slot->column) * k + i % k]);
    }
    __device__ static T& pointer_to(const Matrix& pad, std::int64_t row, std::int64_t col) {
        return static_cast<T*>(pad.data)[row * pad.ld + col];
    }
};

}  // namespace

cudaError_t lora_pack(cudaStream_t stream, const LoraPackParams& p) {
    return with_type(p.b_pad.type, [&](auto element) {
        return launch_elements<1>(stream, p.b_pad.rows + p.a_pad.cols, p.b_pad.cols,
                                  Pack<decltype(element)>{p});
    });
}

}  // namespace loratrain::kernels
