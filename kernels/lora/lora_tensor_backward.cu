#include <algorithm>

#include "kernels/launch.cuh"
#include "lora_columns.cuh"
#include "lora_finish.cuh"
#include "lora_launch.h"
#include "lora_narrow_backward.cuh"
#include "lora_wide_backward.cuh"

namespace loratrain::kernels {

using namespace pass;

namespace {

constexpr int group_ranks = 4;  ///< that one thread of finish_backward adds up
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
struct TilesOfSlot {
    const LoraTile* tiles;
    int slot;
    __device__ bool operator()(int i) const { return tiles[i].slot == slot; }
};

/// Four ranks of a row of dS, which end after `ranks` of them.
__device__ __forceinline__ void put_ranks(Bf16* ds, int ranks, const float (&values)[group_ranks]) {
    if (ranks >= group_ranks && reinterpret_cast<std::uintptr_t>(ds) % 8 == 0) {
        *reinterpret_cast<uint2*>(ds) =
            make_uint2(pack_halves(values[0], values[1]), pack_halves(values[2], values[3]));
        return;
    }
#pragma unroll
    for (int j = 0; j < group_ranks; ++j) {
        if (j < ranks) ds[j] = from_float<Bf16>(values[j]);
    }
}

/// Four ranks of a target's dS, and a quarter of the row's columns of other slots, into ds and,
/// where it has data, `again`. i counts the groups of 4 ranks of all rows of one rank block. Waits
/// for the kernel before when it knows what is whose.
__device__ __forceinline__ void finish_ds(const PassParams& p, const Matrix& ds,
                                          const Matrix& again, int target_index, int rank_block,
                                          int i) {
    const int row = i / groups_of_block;
    const int group = i % groups_of_block;
    if (row >= ds.rows) return;
    int slot_index = -1;
    for (int g = 0; g < p.tables.segment_count; ++g) {
        const LoraSegmentEntry segment = table_entry(p.tables.segments + g);
        if (row < segment.begin) break;
        if (row >= segment.end) continue;
        slot_index = segment.slot;
        break;
    }
    LoraSlotEntry slot{};
    if (slot_index >= 0) {
        slot = table_entry(p.tables.slots + target_index * p.tables.slot_count + slot_index);
    }
    wait_for_kernel_before();
    Bf16* const targets[] = {
        static_cast<Bf16*>(ds.data) + row * ds.ld,
        again.data == nullptr ? nullptr : static_cast<Bf16*>(again.data) + row * again.ld};
    const int begin = slot.column;
    const int end = begin + slot.rank;
    for (Bf16* target : targets) {
        if (rank_block > 0 || target == nullptr) continue;
        clear_outside(target, static_cast<int>(ds.cols), begin, end, group, groups_of_block);
    }
    const int first = rank_block * block_ranks + group * group_ranks;
    if (first >= slot.rank) return;
    const std::int64_t of_part = p.x.rows * block_ranks;
    const std::int64_t first_part =
        static_cast<std::int64_t>(rank_block) * parts_before(p, p.tables.target_count) +
        parts_before(p, target_index);
    const float* part = p.ds + first_part * of_part + static_cast<std::int64_t>(row) * block_ranks +
                        group * group_ranks;
    const float4 sum =
        sum_of_groups(part, of_part, 0, parts_of(p, columns_of(p, target_index)), EveryPart{});
    const float scale = slot.scale;
    const float values[group_ranks] = {scale * sum.x, scale * sum.y, scale * sum.z, scale * sum.w};
    for (Bf16* target : targets) {
        if (target != nullptr) put_ranks(target + begin + first, slot.rank - first, values);
    }
}

/// Four ranks of one row of the gradient of B, a column of x. i counts the groups of 4 ranks of all
/// columns. Waits like finish_ds.
__device__ __forceinline__ void finish_grad_b(const PassParams& p, int slot_index, int rank_block,
                                              int i) {
    if (blockIdx.x * threads / groups_of_block >= p.x.cols) return;
    int most_ranks = 0;
    for (int t = 0; t < p.tables.target_count; ++t) {
        most_ranks = max(most_ranks, ranks_of(p.tables, slot_index, t));
    }
    if (rank_block * block_ranks >= most_ranks) return;
    const TileRange tiles = tiles_of_slot(p.tables, slot_index);
    const int column = i / groups_of_block;
    const int group = i % groups_of_block;
    const int first = rank_block * block_ranks + group * group_ranks;
    if (column >= p.x.cols || tiles.end - tiles.first <= 1) return;
    int target_index = 0;
    while (column >= p.ends[target_index]) ++target_index;
    const LoraSlotEntry slot =
        table_entry(p.tables.slots + target_index * p.tables.slot_count + slot_index);
    wait_for_kernel_before();
    if (first >= slot.rank) return;
    const std::int64_t stride = static_cast<std::int64_t>(p.rank_blocks) * p.x.cols * block_ranks;
    const float* part =
        p.gradients + (rank_block * p.x.cols + column) * block_ranks + group * group_ranks;
    const float4 sum = sum_of_groups(part, stride, tiles.first, tiles.end,
                                     TilesOfSlot{p.tables.tiles, slot_index});
    const float values[group_ranks] = {sum.x, sum.y, sum.z, sum.w};
    float* target = slot.grad_b + (column - columns_of(p, target_index).begin) * slot.rank + first;
#pragma unroll
    for (int j = 0; j < group_ranks; ++j) {
        if (first + j < slot.rank) target[j] = (slot.begins != 0 ? 0.0F : target[j]) + values[j];
    }
}

struct OutputsOfTargets {
    Matrix of[max_lora_targets];
    Matrix again;  ///< of the first
};

/// blockIdx.y: rank block; blockIdx.z: dS of a target, or, behind them, the gradients of B of a
/// slot. Threads with nothing to write end without waiting; those of row 0 always wait, and so does
/// what comes behind.
__global__ void __launch_bounds__(threads)
    finish_backward_kernel(PassParams p, OutputsOfTargets ds) {
    const int i = static_cast<int>(blockIdx.x * threads + threadIdx.x);
    const int rank_block = static_cast<int>(blockIdx.y);
    const auto z = static_cast<int>(blockIdx.z);
    if (z < p.tables.target_count) {
        finish_ds(p, ds.of[z], z == 0 ? ds.again : Matrix{}, z, rank_block, i);
    } else {
        finish_grad_b(p, z - p.tables.target_count, rank_block, i);
    }
}

PassParams backward_pass(const LoraBackwardParams& p) {
    PassParams pass{};
    pass.x = p.dy;
    std::copy_n(p.s, max_lora_targets, pass.s);
    std::copy_n(p.ends, max_lora_targets, pass.ends);
    pass.tables = p.tables;
    pass.rank_blocks = pieces(p.tables.largest_rank, block_ranks);
    pass.part_columns = p.part_columns;
    pass.gradients = static_cast<float*>(p.workspace);
    pass.ds = pass.gradients + static_cast<std::int64_t>(p.tables.tile_count) * pass.rank_blocks *
                                   block_ranks * p.dy.cols;
    return pass;
}

cudaError_t launch_backward(cudaStream_t stream, const PassParams& pass, int shared_limit) {
    const LoraOutputs dy{pass.x.rows, pass.ends, pass.tables.target_count};
    if (lora_backward_is_narrow(dy, pass.tables.largest_rank)) {
        return launch_narrow_backward(stream, pass, shared_limit);
    }
    return pass.rank_blocks <= 2 ? launch_wide_backward<2>(stream, pass, shared_limit)
                                 : launch_wide_backward<4>(stream, pass, shared_limit);
}

}  // namespace

cudaError_t pass::finish_backward(cudaStream_t stream, const PassParams& p, const Matrix* ds,
                                  const Matrix& again) {
    const bool finish_b = p.tables.most_tiles_of_slot > 1;
    const std::int64_t largest =
        (finish_b ? std::max(p.x.rows, p.x.cols) : p.x.rows) * groups_of_block;
    const dim3 grid(
        static_cast<unsigned>(pieces(largest, threads)),
        static_cast<unsigned>(std::max(1, p.rank_blocks)),
        static_cast<unsigned>(p.tables.target_count + (finish_b ? p.tables.slot_count : 0)));
    OutputsOfTargets to{};
    std::copy_n(ds, p.tables.target_count, to.of);
    to.again = again;
    return launch_early(stream, finish_backward_kernel, grid, threads, 0, p, to);
}

cudaError_t lora_backward_tensor(cudaStream_t stream, const LoraBackwardParams& p) {
    const PassParams pass = backward_pass(p);
    if (pass.rank_blocks > 0 && p.tables.tile_count > 0 && p.dy.cols > 0) {
        const cudaError_t status = launch_backward(stream, pass, p.shared_limit);
        if (status != cudaSuccess) return status;
    }
    return finish_backward(stream, pass, p.ds);
}

}  // namespace loratrain::kernels
