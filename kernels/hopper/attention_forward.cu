#include <algorithm>
#include <type_traits>

#include "attention_outputs.cuh"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace warpgroup {

/// Narrow heads take fewer registers, and as many exponentials for half of the products: a third
/// warpgroup hides them.
using NarrowOutputs = OutputShape<64, 3>;
using WideOutputs = OutputShape<128, 2>;

template <class Shape>
using ForwardRegisters =
    std::conditional_t<Shape::groups == 2, Registers<2, 40, 232>, Registers<3, 32, 160>>;

template <class Shape>
__global__ void __launch_bounds__(Shape::threads, 1)
    forward_kernel(const __grid_constant__ AttentionParams p) {
    extern __shared__ __align__(1024) char memory[];
    const std::uint32_t shared = shared_address(memory);
    if (threadIdx.x == 0) {
        make_stage_barriers<Shape>(shared);
        make_barrier(shared + Shape::resident_free_at, Shape::multiplying_warps);
    }
    __syncthreads();
    let_next_kernel_start();
    wait_for_kernel_before();
    if (threadIdx.x < copying_threads) {
        ForwardRegisters<Shape>::of_copying();
        QueryOutputs<Shape>(p, shared).copy(static_cast<int>(threadIdx.x));
    } else {
        ForwardRegisters<Shape>::of_multiplying();
        QueryOutputs<Shape>(p, shared).multiply();
    }
}

template <class Shape>
cudaError_t launch(cudaStream_t stream, const AttentionParams& params) {
    static const int processors = count_processors();
    const int blocks = std::min(processors, params.tile_count * params.heads);
    return launch_with_shared<forward_kernel<Shape>, Shape::shared_bytes>(
        stream, params.shared_limit, static_cast<unsigned>(blocks), Shape::threads, params);
}

}  // namespace warpgroup

std::int32_t attention_hopper_forward_rows(std::int32_t head_dim) {
    using namespace warpgroup;
    return head_dim <= NarrowOutputs::dim ? NarrowOutputs::resident_rows
                                          : WideOutputs::resident_rows;
}

cudaError_t attention_forward_hopper(cudaStream_t stream, const AttentionParams& params) {
    using namespace warpgroup;
    return params.head_dim <= NarrowOutputs::dim ? launch<NarrowOutputs>(stream, params)
                                                 : launch<WideOutputs>(stream, params);
}

}  // namespace loratrain::kernels
