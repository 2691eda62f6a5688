#pragma once

#include <type_traits>

#include "lora_pass_tile.cuh"

/// Adds up the partial sums of a pass, in a fixed order.
namespace loratrain::kernels::pass {

/// dS of all targets from its parts, with other columns 0; and the gradients of B of slots that
/// have several tiles. ds: [T, R] per target; if `again` has data, it receives a copy of the first
/// target's dS.
cudaError_t finish_backward(cudaStream_t stream, const PassParams& p, const Matrix* ds,
                            const Matrix& again = {});

/// The gradients of A of slots that have several tiles.
cudaError_t finish_grad_a(cudaStream_t stream, const PassParams& p);

/// Reads an entry of a device table, written by store_small_table() or a copy, from the L2: valid
/// even before wait_for_kernel_before(), while the kernel before ends.
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

/// The entry of a slot in a target, read as by table_entry().
template <class Index>
__device__ __forceinline__ int ranks_of(const LoraTables& tables, int slot, Index target) {
    const LoraSlotEntry* of_target = tables.slots + target * tables.slot_count + slot;
    return table_entry(&of_target->rank);
}

/// The range of tiles [first, end) that has all tiles of a slot, found by all threads of a block.
/// Valid even before wait_for_kernel_before(), as table_entry().
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
