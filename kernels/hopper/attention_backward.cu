#include <algorithm>

#include "attention_keys.cuh"
#include "attention_queries.cuh"
#include "attention_query_products.cuh"
#include "kernels/launch.cuh"

namespace loratrain::kernels {

namespace warpgroup {

using BackwardRegisters = Registers<groups, 24, 240>;
using Middle = BlockShape<128>;
using Narrow = BlockShape<64>;

template <class Shape>
__device__ __forceinline__ void make_barriers(std::uint32_t shared) {
    make_stage_barriers<Shape>(shared);
    make_barrier(shared + Shape::resident_filled_at, copying_threads);
    make_barrier(shared + Shape::resident_free_at, multiplying_threads / 32);
}

/// Keys' blocks first: they take longest, and queries' fill the multiprocessors that they leave.
template <class Shape>
__global__ void __launch_bounds__(all_threads, 1)
    backward_kernel(const __grid_constant__ AttentionBackwardParams p,
                    const __grid_constant__ KvHeads of) {
    extern __shared__ __align__(1024) char memory[];
    const std::uint32_t shared = shared_address(memory);
    if (threadIdx.x == 0) make_barriers<Shape>(shared);
    __syncthreads();
    let_next_kernel_start();
    wait_for_kernel_before();
    const int block = static_cast<int>(blockIdx.x);
    const int of_keys = p.key_tile_count * of.count;
    if (threadIdx.x < copying_threads) {
        BackwardRegisters::of_copying();
        const int thread = static_cast<int>(threadIdx.x);
        if (block < of_keys) {
            KeySums<Shape>(p, of, block, shared).copy(thread);
        } else {
            QuerySums<Shape>(p, block - of_keys, shared).copy(thread);
        }
    } else {
        BackwardRegisters::of_multiplying();
        if (block < of_keys) {
            KeySums<Shape>(p, of, block, shared).multiply();
        } else {
            QuerySums<Shape>(p, block - of_keys, shared).multiply();
        }
    }
}

template <class Shape>
__global__ void __launch_bounds__(all_threads, 1)
    product_kernel(const __grid_constant__ AttentionBackwardParams p,
                   const __grid_constant__ KvHeads of) {
    extern __shared__ __align__(1024) char memory[];
    const std::uint32_t shared = shared_address(memory);
    if (threadIdx.x == 0) make_stage_barriers<Shape>(shared);
    __syncthreads();
    let_next_kernel_start();
    wait_for_kernel_before();
    QueryProducts<Shape> products(p, of, static_cast<int>(blockIdx.x), shared);
    if (threadIdx.x < copying_threads) {
        products.copy(static_cast<int>(threadIdx.x));
    } else {
        products.multiply();
    }
}

template <class Shape>
cudaError_t launch_products(cudaStream_t stream, const AttentionBackwardParams& params,
                            const KvHeads& of) {
    const AttentionParams& forward = params.forward;
    const int blocks = params.query_tile_count * of.count *
                       Shape::blocks_of_tile(forward.heads / forward.kv_heads);
    return launch_with_shared<product_kernel<Shape>, Shape::shared_bytes>(
        stream, forward.shared_limit, static_cast<unsigned>(blocks), all_threads, params, of);
}

template <class Shape>
cudaError_t launch(cudaStream_t stream, const AttentionBackwardParams& params, const KvHeads& of) {
    const int tiles = params.key_tile_count + (of.keep_scores ? 0 : params.query_tile_count);
    const cudaError_t error = launch_with_shared<backward_kernel<Shape>, Shape::shared_bytes>(
        stream, params.forward.shared_limit, static_cast<unsigned>(tiles * of.count), all_threads,
        params, of);
    if (error != cudaSuccess || !of.keep_scores) return error;
    return launch_products<ProductShape<Shape::dim>>(stream, params, of);
}

/// All heads, or as many at a time as there is room for the gradients of their scores.
template <class Shape>
cudaError_t launch_all(cudaStream_t stream, const AttentionBackwardParams& params) {
    const std::int32_t all = params.forward.kv_heads;
    const std::int32_t at_once = params.score_kv_heads;
    if (at_once == 0) return launch<Shape>(stream, params, {0, all, false});
    cudaError_t error = cudaSuccess;
    for (std::int32_t first = 0; first < all && error == cudaSuccess; first += at_once) {
        error = launch<Shape>(stream, params, {first, std::min(at_once, all - first), true});
    }
    return error;
}

}  // namespace warpgroup

bool runs_attention_hopper(int shared_limit) {
    using namespace warpgroup;
    static const bool has_code = [] {
        cudaFuncAttributes attributes{};
        const cudaError_t error = cudaFuncGetAttributes(&attributes, backward_kernel<Middle>);
        if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
        return error == cudaSuccess;
    }();
    return has_code && shared_limit >= Middle::shared_bytes;
}

cudaError_t attention_backward_hopper(cudaStream_t stream, const AttentionBackwardParams& params) {
    using namespace warpgroup;
    const cudaError_t error = attention_row_stats(stream, params);
    if (error != cudaSuccess) return error;
    return params.forward.head_dim <= Narrow::dim ? launch_all<Narrow>(stream, params)
                                                  : launch_all<Middle>(stream, params);
}

}  // namespace loratrain::kernels
