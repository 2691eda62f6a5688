#include <algorithm>
#include <type_traits>

#include "attention_outputs.cuh"
#include "attention_wide_outputs.cuh"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace warpgroup {

/// Narrow heads take fewer registers, and as many exponentials for half of the products: a third
/// warpgroup hides them.
using Narrow = OutputShape<64, 3>;
using Middle = OutputShape<128, 2>;

template <class Shape>
using ForwardRegisters =
    std::conditional_t<Shape::groups == 2, Registers<2, 40, 232>, Registers<3, 32, 160>>;

template <class Shape, class Outputs>
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
        Outputs(p, shared).copy(static_cast<int>(threadIdx.x));
    } else {
        ForwardRegisters<Shape>::of_multiplying();
        Outputs(p, shared).multiply();
    }
}

template <class Shape, class Outputs>
cudaError_t launch_outputs(cudaStream_t stream, const AttentionParams& params) {
    static const int processors = count_processors();
    const int blocks = std::min(processors, params.tile_count * params.heads);
    return launch_with_shared<forward_kernel<Shape, Outputs>, Shape::shared_bytes>(
        stream, params.shared_limit, static_cast<unsigned>(blocks), Shape::threads, params);
}

template <class Shape, template <class, bool> class Outputs = QueryOutputs>
cudaError_t launch(cudaStream_t stream, const AttentionParams& params) {
    return params.sinks == nullptr ? launch_outputs<Shape, Outputs<Shape, false>>(stream, params)
                                   : launch_outputs<Shape, Outputs<Shape, true>>(stream, params);
}

template <int dim>
cudaError_t launch_wide(cudaStream_t stream, const AttentionParams& params) {
    using Shape = WideOutputShape<dim>;
    static_assert(Shape::resident_rows == Middle::resident_rows);
    return launch<Shape, WideOutputs>(stream, params);
}

}  // namespace warpgroup

std::int32_t attention_hopper_forward_rows(std::int32_t head_dim) {
    using namespace warpgroup;
    return head_dim <= Narrow::dim ? Narrow::resident_rows : Middle::resident_rows;
}

cudaError_t attention_forward_hopper(cudaStream_t stream, const AttentionParams& params) {
    using namespace warpgroup;
    if (params.head_dim <= Narrow::dim) return launch<Narrow>(stream, params);
    if (params.head_dim <= Middle::dim) return launch<Middle>(stream, params);
    return params.head_dim <= 192 ? launch_wide<192>(stream, params)
                                  : launch_wide<256>(stream, params);
}

}  // namespace loratrain::kernels
