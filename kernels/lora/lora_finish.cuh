#pragma once

#include "lora_columns.cuh"
#include "lora_sweep_tile.cuh"

/// Adds up what the thread blocks of a launch have left in memory, in a fixed order.
namespace loratrain::kernels::sweep {

constexpr int group_ranks = 4;  ///< that one thread adds up
constexpr int groups_of_block = block_ranks / group_ranks;

/// Sum of part[i * stride] over the i of [first, end) that `wanted` accepts; 8 loads at a time.
template <class Wanted>
__device__ __forceinline__ float4 sum_of_groups(const float* part, std::int64_t stride, int first,
                                                int end, const Wanted& wanted) {
    constexpr int batch = 8;
    float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
    for (; first < end; first += batch) {
        float4 terms[batch];
        bool counts[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            const int at = min(first + i, end - 1);
            terms[i] = *reinterpret_cast<const float4*>(part + at * stride);
            counts[i] = first + i < end && wanted(at);
        }
#pragma unroll
        for (int i = 0; i < batch; ++i) {
            sum.x += counts[i] ? terms[i].x : 0.0F;
            sum.y += counts[i] ? terms[i].y : 0.0F;
            sum.z += counts[i] ? terms[i].z : 0.0F;
            sum.w += counts[i] ? terms[i].w : 0.0F;
        }
    }
    return sum;
}

struct EveryPart {
    __device__ bool operator()(int) const { return true; }
};

/// S or dS of a target from the sums of `part_count` parts of the columns, [part, T, 16 ranks], the
/// first of slot s number first_part(s): four ranks of a row, times the slot's scale, and a quarter
/// of the row's columns of other slots, which become 0. i counts the groups of 4 ranks of all rows
/// of rank block `rank_block`.
template <class FirstPart>
__device__ __forceinline__ void finish_product(const LoraTables& tables, const Matrix& product,
                                               int target, int rank_block, int i,
                                               const float* parts, int part_count,
                                               const FirstPart& first_part) {
    const int row = i / groups_of_block;
    const int group = i % groups_of_block;
    if (row >= product.rows) return;
    int slot_index = -1;
    for (int g = 0; g < tables.segment_count; ++g) {
        const LoraSegmentEntry& segment = tables.segments[g];
        if (row < segment.begin) break;
        if (row >= segment.end) continue;
        slot_index = segment.slot;
        break;
    }
    auto* of_row = static_cast<Bf16*>(product.data) + row * product.ld;
    const LoraSlotEntry* slot =
        slot_index < 0 ? nullptr : tables.slots + target * tables.slot_count + slot_index;
    const int begin = slot == nullptr ? 0 : slot->column;
    const int end = slot == nullptr ? 0 : begin + slot->rank;
    if (rank_block == 0) {
        clear_outside(of_row, static_cast<int>(product.cols), begin, end, group, groups_of_block);
    }
    const int first = rank_block * block_ranks + group * group_ranks;
    if (slot == nullptr || first >= slot->rank) return;
    const std::int64_t of_part = product.rows * block_ranks;
    const float* part = parts + first_part(slot_index) * of_part +
                        static_cast<std::int64_t>(row) * block_ranks + group * group_ranks;
    const float4 sum = sum_of_groups(part, of_part, 0, part_count, EveryPart{});
    const float values[group_ranks] = {sum.x, sum.y, sum.z, sum.w};
    Bf16* own = of_row + begin + first;
    if (first + group_ranks <= slot->rank && reinterpret_cast<std::uintptr_t>(own) % 8 == 0) {
        *reinterpret_cast<uint2*>(own) =
            make_uint2(pack_halves(slot->scale * values[0], slot->scale * values[1]),
                       pack_halves(slot->scale * values[2], slot->scale * values[3]));
        return;
    }
#pragma unroll
    for (int j = 0; j < group_ranks; ++j) {
        if (first + j < slot->rank) own[j] = from_float<Bf16>(slot->scale * values[j]);
    }
}

}  // namespace loratrain::kernels::sweep
