#include <algorithm>

#include "kernels/launch.cuh"
#include "lora_finish.cuh"
#include "lora_launch.h"
#include "lora_wide_pass.cuh"

namespace loratrain::kernels {

using namespace pass;

namespace {

/// A thread adds `ranks` of a slot in a target in one column of X; ranks divide block_ranks.
template <int ranks>
__global__ void __launch_bounds__(threads) finish_grad_a_kernel(PassParams p) {
    static_assert(block_ranks % ranks == 0);
    const auto slot_index = static_cast<std::int32_t>(blockIdx.z % p.tables.slot_count);
    const LoraSlotEntry slot = table_entry(p.tables.slots + blockIdx.z);
    const int rank = static_cast<int>(blockIdx.y) * ranks;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * threads + threadIdx.x;
    const TileRange tiles = tiles_of_slot(p.tables, slot_index);
    std::int64_t block = rank / block_ranks;
    for (unsigned i = 0; i < blockIdx.z / p.tables.slot_count; ++i) {
        block += (ranks_of(p.tables, slot_index, i) + block_ranks - 1) / block_ranks;
    }
    wait_for_kernel_before();
    if (rank >= slot.rank || column >= p.x.cols || tiles.end - tiles.first <= 1) return;
    const std::int64_t stride = static_cast<std::int64_t>(p.rank_blocks) * block_ranks * p.x.cols;
    const float* part =
        p.gradients + (block * block_ranks + rank % block_ranks) * p.x.cols + column;
    float sums[ranks] = {};
    constexpr int tiles_at_once = 8 / ranks;
#pragma unroll tiles_at_once
    for (int tile = tiles.first; tile < tiles.end; ++tile) {
        const bool own = p.tables.tiles[tile].slot == slot_index;
#pragma unroll
        for (int r = 0; r < ranks; ++r) {
            const float term = part[tile * stride + r * p.x.cols];
            sums[r] += own ? term : 0.0F;
        }
    }
    const float scale = dropout_scale(slot.dropout) * weight_of(p, column);
    float* target = slot.grad_a + rank * p.x.cols + column;
    float before[ranks];
#pragma unroll
    for (int r = 0; r < ranks; ++r) {
        before[r] = rank + r < slot.rank && slot.begins == 0 ? target[r * p.x.cols] : 0.0F;
    }
#pragma unroll
    for (int r = 0; r < ranks; ++r) {
        if (rank + r < slot.rank) target[r * p.x.cols] = before[r] + sums[r] * scale;
    }
}

template <int ranks>
cudaError_t launch_finish(cudaStream_t stream, const PassParams& p) {
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, threads)),
                    static_cast<unsigned>(pieces(p.tables.largest_rank, ranks)),
                    static_cast<unsigned>(p.tables.target_count * p.tables.slot_count));
    return launch_early(stream, finish_grad_a_kernel<ranks>, grid, threads, 0, p);
}

constexpr int wide_blocks = 4;

__global__ void __launch_bounds__(wide_threads, blocks_of_processor)
    wide_grad_a_kernel(PassParams p) {
    extern __shared__ uint4 staging[];
    let_next_kernel_start();
    wait_for_kernel_before();
    const LoraTile tile = p.tables.tiles[blockIdx.y];
    if (tile.segment < 0) return;
    pass_wide<wide_blocks, false>(p, tile, find_columns<false>(p, column_block_of_block(p)),
                                  rank_group_of_block(p), staging);
}

cudaError_t launch_wide_grad_a(cudaStream_t stream, PassParams p, int shared_limit) {
    p.rank_groups = pieces(p.rank_blocks, wide_blocks);
    const dim3 grid(static_cast<unsigned>(pieces(p.x.cols, block_columns) * p.rank_groups),
                    static_cast<unsigned>(p.tables.tile_count));
    return launch_with_shared<wide_grad_a_kernel, Wide<wide_blocks>::bytes>(stream, shared_limit,
                                                                            grid, wide_threads, p);
}

template <bool with_dropout>
cudaError_t launch_grad_a(cudaStream_t stream, const PassParams& p, int shared_limit) {
    if (!with_dropout && p.tables.largest_rank_sum > most_narrow_rank_sum) {
        return launch_wide_grad_a(stream, p, shared_limit);
    }
    switch (p.rank_blocks) {
        case 1:
            return launch_pass<1, with_dropout>(stream, p, shared_limit);
        case 2:
            return launch_pass<2, with_dropout>(stream, p, shared_limit);
        default:
            return launch_pass<3, with_dropout>(stream, p, shared_limit);
    }
}

PassParams grad_a_pass(const LoraGradAParams& p) {
    PassParams pass{};
    pass.x = p.x;
    for (int i = 0; i < p.tables.target_count; ++i) pass.s[i] = p.ds[i];
    pass.tables = p.tables;
    pass.rank_blocks = p.tables.largest_rank_sum / block_ranks;
    pass.gradients = static_cast<float*>(p.workspace);
    pass.weight = static_cast<const Bf16*>(p.weight);
    pass.weight_offset = p.weight_offset;
    return pass;
}

}  // namespace

/// Many ranks a thread where blocks of one rank would be so many that starting them is the cost.
cudaError_t pass::finish_grad_a(cudaStream_t stream, const PassParams& p) {
    if (p.tables.most_tiles_of_slot <= 1) return cudaSuccess;
    constexpr int many_ranks = 8;
    constexpr std::int64_t many_blocks = 16384;
    const std::int64_t blocks = static_cast<std::int64_t>(pieces(p.x.cols, threads)) *
                                p.tables.largest_rank * p.tables.target_count * p.tables.slot_count;
    return blocks < many_blocks ? launch_finish<1>(stream, p)
                                : launch_finish<many_ranks>(stream, p);
}

cudaError_t lora_grad_a_tensor(cudaStream_t stream, const LoraGradAParams& p) {
    const PassParams pass = grad_a_pass(p);
    if (pass.rank_blocks == 0 || p.tables.tile_count == 0 || p.x.cols == 0) return cudaSuccess;
    const cudaError_t status = p.tables.dropout
                                   ? launch_grad_a<true>(stream, pass, p.shared_limit)
                                   : launch_grad_a<false>(stream, pass, p.shared_limit);
    return status != cudaSuccess ? status : finish_grad_a(stream, pass);
}

}  // namespace loratrain::kernels
