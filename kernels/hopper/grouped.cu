#include <algorithm>
#include <type_traits>

#include "grouped_block.cuh"

namespace loratrain::kernels {

namespace grouped {

namespace {

template <class Finish, bool gathered, bool backward, bool adds>
__global__ void __launch_bounds__(GroupedShape::threads, 1)
    product_kernel(const __grid_constant__ HopperProduct product, int column_tiles) {
    using Block = GroupedBlock<Finish, gathered, backward, adds>;
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
        give_registers<GroupedShape::copying>();
        if (warp == 0) {
            Block(product, shared).copy(column_tiles);
        } else {
            Block(product, shared).finish(warp - 1);
        }
    } else {
        take_registers<GroupedShape::multiplying>();
        Block(product, shared).multiply(warp / 4 - 1, warp % 4);
    }
}

template <class Finish, bool gathered, bool backward>
cudaError_t launch(cudaStream_t stream, const HopperProduct& product) {
    static const int processors = count_processors();
    const int columns = column_tiles(product.p);
    const std::int64_t tiles = most_expert_tiles(product.p.rows, product.p.experts) * columns;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(processors, tiles));
    const auto run = [&](auto adds) {
        return launch_with_shared<product_kernel<Finish, gathered, backward, adds()>,
                                  GroupedShape::shared_bytes>(
            stream, GroupedShape::shared_bytes, blocks, GroupedShape::threads, product, columns);
    };
    return product.p.added.factors == nullptr ? run(std::false_type{}) : run(std::true_type{});
}

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/// cuTensorMapEncodeTiled of the driver, which this library is not linked to.
EncodeTiled encode_tiled() {
    constexpr unsigned version = 12000;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                               version, cudaEnableDefault, &found);
#else
    const cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    const bool is_found = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
    return is_found ? reinterpret_cast<EncodeTiled>(function) : nullptr;
}

/// Of [matrices, rows, columns] in bf16: boxes of 64 columns and `box_rows` rows as panels.
cudaError_t make_map(CUtensorMap& map, const void* data, std::int64_t matrices, std::int64_t rows,
                     std::int64_t columns, std::int64_t ld, int box_rows) {
    static const EncodeTiled encode = encode_tiled();
    if (encode == nullptr) return cudaErrorNotSupported;
    const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                                 static_cast<cuuint64_t>(matrices)};
    const cuuint64_t strides[2] = {static_cast<cuuint64_t>(ld) * 2,
                                   static_cast<cuuint64_t>(ld * rows) * 2};
    const cuuint32_t box[3] = {panel_columns, static_cast<cuuint32_t>(box_rows), 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(data), sizes, strides,
               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

}  // namespace grouped

cudaError_t expert_product_hopper(cudaStream_t stream, const ExpertProduct& p) {
    using namespace grouped;
    HopperProduct product{};
    product.p = p;
    cudaError_t error = make_map(product.weights, p.w, p.experts, p.outputs, p.inputs, p.inputs,
                                 p.backward ? GroupedShape::depth : gate_columns);
    if (error == cudaSuccess && p.a_rows == nullptr) {
        error = make_map(product.rows, p.a.data, 1, p.rows, p.a.cols, p.a.ld, staged_rows);
    }
    if (const ExpertAddition& added = p.added; error == cudaSuccess && added.factors != nullptr) {
        const std::int64_t columns = added.s.cols;
        error = make_map(product.s, added.s.data, 1, p.rows, columns, added.s.ld, staged_rows);
        if (error != cudaSuccess) return error;
        error = p.backward ? make_map(product.factors, added.factors, p.experts, columns, p.inputs,
                                      p.inputs, GroupedShape::depth)
                           : make_map(product.factors, added.factors, p.experts, p.outputs, columns,
                                      columns, gate_columns);
    }
    if (error != cudaSuccess) return error;
    return with_finish(p, [&](auto finish) {
        using Finish = decltype(finish);
        if constexpr (Finish::finish == ExpertFinish::store) {
            return p.backward ? launch<Finish, false, true>(stream, product)
                              : launch<Finish, false, false>(stream, product);
        } else {
            constexpr bool backward = Finish::finish == ExpertFinish::gate_backward;
            return launch<Finish, true, backward>(stream, product);
        }
    });
}

}  // namespace loratrain::kernels
