#include <algorithm>

#include "kernels/launch.cuh"
#include "lora.h"

namespace loratrain::kernels {

namespace {

constexpr std::int16_t nobody = -1;
constexpr unsigned most_blocks_of_item = 64;

/// Which slot each of the R columns belongs to.
__device__ __forceinline__ void find_owners(const LoraPackItem& item, const LoraSlotEntry* slots,
                                            std::int16_t* owners) {
    const int columns = static_cast<int>(item.columns);
    for (int i = static_cast<int>(threadIdx.x); i < columns; i += block_threads) {
        owners[i] = nobody;
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < item.slot_count; i += block_threads) {
        const int first = slots[i].column;
        const int end = min(first + slots[i].rank, columns);
        for (int column = first; column < end; ++column) {
            owners[column] = static_cast<std::int16_t>(i);
        }
    }
    __syncthreads();
}

/// What is too large for T also becomes 0.
template <class T, int N>
__device__ __forceinline__ void store_finite(T* target, float (&v)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
        if (!isfinite(to_float(from_float<T>(v[i])))) v[i] = 0.0F;
    }
    store<N>(target, v);
}

/// N columns of row `row` of b_pad.
template <class T, int N>
__device__ __forceinline__ void pack_b(const LoraPackItem& item, const LoraSlotEntry* slots,
                                       const std::int16_t* owners, std::int64_t row, int column) {
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const int own = column + i - static_cast<int>(item.b_first);
        const bool inside = own >= 0 && own < static_cast<int>(item.columns);
        const int owner = inside ? owners[own] : nobody;
        v[i] = 0.0F;
        if (owner == nobody) continue;
        const LoraSlotEntry& slot = slots[owner];
        v[i] = slot.b[row * slot.rank + own - slot.column];
    }
    store_finite<T, N>(static_cast<T*>(item.b_pad) + row * item.b_ld + column, v);
}

/// N columns of row `rank` of a_pad.
template <class T, int N>
__device__ __forceinline__ void pack_a(const LoraPackItem& item, const LoraSlotEntry* slots,
                                       const std::int16_t* owners, int rank, std::int64_t column) {
    float v[N] = {};
    const int owner = owners[rank];
    if (owner != nobody) {
        const LoraSlotEntry& slot = slots[owner];
        const float* source = slot.a + (rank - slot.column) * item.in + column;
        if (N == 1 || reinterpret_cast<std::uintptr_t>(source) % 16 == 0) {
            load<N>(source, v);
        } else {
#pragma unroll
            for (int i = 0; i < N; ++i) v[i] = source[i];
        }
    }
    store_finite<T, N>(static_cast<T*>(item.a_pad) + rank * item.a_ld + column, v);
}

/// blockIdx.y: item.
template <class T, int N>
__global__ void __launch_bounds__(block_threads) pack_kernel(LoraPackParams p) {
    extern __shared__ std::int16_t owners[];
    const LoraPackItem item = p.items[blockIdx.y];
    const LoraSlotEntry* slots = p.slots + item.first_slot;
    find_owners(item, slots, owners);
    const std::int64_t b_row = item.b_columns / N;
    const std::int64_t a_row = item.in / N;
    const std::int64_t of_b = item.out * b_row;
    const std::int64_t count = of_b + item.columns * a_row;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * block_threads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
         i < count; i += step) {
        if (i < of_b) {
            pack_b<T, N>(item, slots, owners, i / b_row, static_cast<int>(i % b_row) * N);
        } else {
            pack_a<T, N>(item, slots, owners, static_cast<int>((i - of_b) / a_row),
                         (i - of_b) % a_row * N);
        }
    }
}

template <class T, int N>
cudaError_t launch(cudaStream_t stream, const LoraPackParams& p) {
    const std::int64_t blocks = (p.largest / N + block_threads - 1) / block_threads;
    const dim3 grid(static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, most_blocks_of_item)),
                    static_cast<unsigned>(p.item_count));
    const std::size_t shared = static_cast<std::size_t>(p.most_columns) * sizeof(std::int16_t);
    pack_kernel<T, N><<<grid, block_threads, shared, stream>>>(p);
    return cudaGetLastError();
}

}  // namespace

bool lora_pack_is_wide(const Matrix& b_pad, const Matrix& a_pad) {
    return all_wide({&b_pad, &a_pad});
}

cudaError_t lora_pack(cudaStream_t stream, const LoraPackParams& p) {
    if (p.item_count == 0 || p.largest == 0) return cudaSuccess;
    return with_type(p.type, [&](auto element) {
        using T = decltype(element);
        return p.is_wide ? launch<T, wide>(stream, p) : launch<T, 1>(stream, p);
    });
}

}  // namespace loratrain::kernels
