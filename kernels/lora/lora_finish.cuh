#pragma once

#include <type_traits>

#include "lora_pass_tile.cuh"

/// What follows a pass: its partial sums are added up, in a fixed order.
namespace loratrain::kernels::pass {

/// dS of all targets from their parts of the columns, with other columns 0; and, where a slot has
/// several tiles, the gradients of B from those of tiles. ds: [T, R] per target; `again`, where it
/// has data, gets the first target's too.
cudaError_t finish_backward(cudaStream_t stream, const PassParams& p, const Matrix* ds,
                            const Matrix& again = {});

/// The gradients of A of slots that have several tiles.
cudaError_t finish_grad_a(cudaStream_t stream, const PassParams& p);

/// An entry of a table that store_small_table or a copy has put on the device, as it is in the L2:
/// also before wait_for_kernel_before(), while the kernel before ends.
template <class T>
__device__ __forceinline__ T table_entry(const T* from) {
    using Word = std::conditional_t<alignof(T) % 8 == 0, long long, int>;
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) % sizeof(Word) == 0);
    T entry;
    Word words[sizeof(T) / sizeof(Word)];
#pragma unroll
    for (std::size_t i = 0; i < sizeof(T) / sizeof(Word); ++i) {
        words[i] = __ldcg(reinterpret_cast<const Word*>(from) + i);
    }
    memcpy(&entry, words, sizeof(T));
    return entry;
}

/// Of a slot in a target, like table_entry().
template <class Index>
__device__ __forceinline__ int ranks_of(const LoraTables& tables, int slot, Index target) {
    const LoraSlotEntry* of_target = tables.slots + target * tables.slot_count + slot;
    return table_entry(&of_target->rank);
}

/// Tiles [first, end) in which all of a slot's are; a block's threads look for them together. Like
/// table_entry(), also before wait_for_kernel_before().
struct TileRange {
    int first;
    int end;
};
__device__ __forceinline__ TileRange tiles_of_slot(const LoraTables& tables, int slot) {
    __shared__ TileRange range;
    if (threadIdx.x == 0) range = {tables.tile_count, 0};
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < tables.tile_count; i += threads) {
        if (table_entry(&tables.tiles[i].slot) != slot) continue;
        atomicMin(&range.first, i);
        atomicMax(&range.end, i + 1);
    }
    __syncthreads();
    return range;
}

}  // namespace loratrain::kernels::pass
