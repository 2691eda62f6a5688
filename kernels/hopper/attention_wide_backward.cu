#include <algorithm>

#include "attention_wide_keys.cuh"
#include "attention_wide_queries.cuh"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace warpgroup {

using WideRegisters = Registers<groups, 24, 240>;

template <int dim>
constexpr int wide_shared_bytes = std::max(WideKeyShape<dim>::shared_bytes,
                                           WideQueryShape<dim>::shared_bytes);

/// A block's work: `Sums` of tile and head number `block`.
template <class Sums>
__device__ __forceinline__ void run(const AttentionBackwardParams& p, int block,
                                    std::uint32_t shared) {
    if (threadIdx.x == 0) Sums::make_barriers(shared);
    __syncthreads();
    let_next_kernel_start();
    wait_for_kernel_before();
    if (threadIdx.x < copying_threads) {
        WideRegisters::of_copying();
        Sums(p, block, shared).copy(static_cast<int>(threadIdx.x));
    } else {
        WideRegisters::of_multiplying();
        Sums(p, block, shared).multiply();
    }
}

/// Keys' blocks first: they take longest, and queries' fill the multiprocessors that they leave.
template <int dim>
__global__ void __launch_bounds__(all_threads, 1)
    wide_backward_kernel(const __grid_constant__ AttentionBackwardParams p) {
    extern __shared__ __align__(1024) char memory[];
    const std::uint32_t shared = shared_address(memory);
    const int block = static_cast<int>(blockIdx.x);
    const int of_keys = p.key_tile_count * p.forward.kv_heads;
    if (block < of_keys) {
        run<WideKeySums<WideKeyShape<dim>>>(p, block, shared);
    } else {
        run<WideQuerySums<WideQueryShape<dim>>>(p, block - of_keys, shared);
    }
}

template <int dim>
cudaError_t launch_wide(cudaStream_t stream, const AttentionBackwardParams& params) {
    const AttentionParams& forward = params.forward;
    const int blocks =
        params.key_tile_count * forward.kv_heads + params.query_tile_count * forward.heads;
    return launch_with_shared<wide_backward_kernel<dim>, wide_shared_bytes<dim>>(
        stream, forward.shared_limit, static_cast<unsigned>(blocks), all_threads, params);
}

}  // namespace warpgroup

cudaError_t attention_backward_wide_hopper(cudaStream_t stream,
                                           const AttentionBackwardParams& params) {
    using namespace warpgroup;
    const cudaError_t error = attention_row_stats(stream, params);
    if (error != cudaSuccess) return error;
    return params.forward.head_dim <= 192 ? launch_wide<192>(stream, params)
                                          : launch_wide<256>(stream, params);
}

}  // namespace loratrain::kernels
