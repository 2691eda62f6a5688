#pragma once

#include <algorithm>
#include <type_traits>

#include "grouped_block.cuh"

/// Launches grouped products of experts, y_p = x_p W_eᵀ for every place p of expert e, in bf16
/// (grouped.cu) and in codes (grouped_codes.cu). grouped_block.cuh has the work of a block.

namespace loratrain::kernels::grouped {

template <class Finish, bool gathered, bool backward, bool codes, bool adds>
__global__ void __launch_bounds__(GroupedShape::threads, 1)
    product_kernel(const __grid_constant__ HopperProduct product, int column_tiles) {
    using Block = GroupedBlock<Finish, gathered, backward, codes, adds>;
    using Registers = GroupedRegisters<Block::exact>;
    extern __shared__ __align__(1024) char memory[];
    const std::uint32_t shared = shared_address(memory);
    if (threadIdx.x == 0) {
        Block::make_barriers(shared);
        show_to_products();
    }
    __syncthreads();
    let_next_kernel_start();
    wait_for_kernel_before();
    const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
    if (warp < 4) {
        give_registers<Registers::copying>();
        if (warp == 0) {
            Block(product, shared).copy(column_tiles);
        } else {
            Block(product, shared).finish(warp - 1);
        }
    } else {
        take_registers<Registers::multiplying>();
        Block(product, shared).multiply(warp / 4 - 1, warp % 4);
    }
}

template <class Finish, bool gathered, bool backward, bool codes = false>
cudaError_t launch(cudaStream_t stream, const HopperProduct& product) {
    static const int processors = count_processors();
    const int columns = column_tiles(product.p);
    const std::int64_t tiles = most_expert_tiles(product.p.rows, product.p.experts) * columns;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(processors, tiles));
    const auto run = [&](auto adds) {
        return launch_with_shared<product_kernel<Finish, gathered, backward, codes, adds()>,
                                  GroupedShape::shared_bytes>(
            stream, GroupedShape::shared_bytes, blocks, GroupedShape::threads, product, columns);
    };
    return product.p.added.factors == nullptr ? run(std::false_type{}) : run(std::true_type{});
}

/// A tensor in global memory for make_map(): [matrices, rows, columns] in `data`, with a stride of
/// `ld` columns of `column_bytes` bytes.
struct MapOf {
    const void* data;
    std::int64_t matrices;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t ld;
    int column_bytes = 2;
};
/// Makes the TMA map that copies boxes of `box_rows` rows x 128 bytes to panels of shared memory.
cudaError_t make_map(CUtensorMap& map, const MapOf& of, int box_rows);
/// Makes the TMA maps of ExpertProduct::added, if it has factors.
cudaError_t make_added_maps(HopperProduct& product);

}  // namespace loratrain::kernels::grouped
