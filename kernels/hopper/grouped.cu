#include "grouped_run.cuh"

namespace loratrain::kernels {

namespace grouped {

namespace {

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

}  // namespace

cudaError_t make_map(CUtensorMap& map, const MapOf& of, int box_rows) {
    static const EncodeTiled encode = encode_tiled();
    if (encode == nullptr) return cudaErrorNotSupported;
    const std::int64_t row_bytes = of.ld * of.column_bytes;
    const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(of.columns),
                                 static_cast<cuuint64_t>(of.rows),
                                 static_cast<cuuint64_t>(of.matrices)};
    const cuuint64_t strides[2] = {static_cast<cuuint64_t>(row_bytes),
                                   static_cast<cuuint64_t>(row_bytes * of.rows)};
    const cuuint32_t box[3] = {static_cast<cuuint32_t>(panel_row_bytes / of.column_bytes),
                               static_cast<cuuint32_t>(box_rows), 1};
    const cuuint32_t steps[3] = {1, 1, 1};
    const CUresult result = encode(
        &map,
        of.column_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3,
        const_cast<void*>(of.data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t make_added_maps(HopperProduct& product) {
    const ExpertProduct& p = product.p;
    const ExpertAddition& added = p.added;
    if (added.factors == nullptr) return cudaSuccess;
    const std::int64_t columns = added.s.cols;
    const cudaError_t error =
        make_map(product.s, {added.s.data, 1, p.rows, columns, added.s.ld}, staged_rows);
    if (error != cudaSuccess) return error;
    return p.backward
               ? make_map(product.factors, {added.factors, p.experts, columns, p.inputs, p.inputs},
                          GroupedShape::depth)
               : make_map(product.factors, {added.factors, p.experts, p.outputs, columns, columns},
                          gate_columns);
}

}  // namespace grouped

cudaError_t expert_product_hopper(cudaStream_t stream, const ExpertProduct& p) {
    using namespace grouped;
    HopperProduct product{};
    product.p = p;
    cudaError_t error = make_map(product.weights, {p.w, p.experts, p.outputs, p.inputs, p.inputs},
                                 p.backward ? GroupedShape::depth : gate_columns);
    if (error == cudaSuccess && p.a_rows == nullptr) {
        error = make_map(product.rows, {p.a.data, 1, p.rows, p.a.cols, p.a.ld}, staged_rows);
    }
    if (error == cudaSuccess) error = make_added_maps(product);
    if (error != cudaSuccess) return error;
    return with_finish(p, [&](auto finish) {
        using Finish = decltype(finish);
        if constexpr (Finish::finish == ExpertFinish::store && Finish::biased) {
            return launch<Finish, false, false>(stream, product);
        } else if constexpr (Finish::finish == ExpertFinish::store) {
            return p.backward ? launch<Finish, false, true>(stream, product)
                              : launch<Finish, false, false>(stream, product);
        } else {
            constexpr bool backward = Finish::finish == ExpertFinish::gate_backward;
            return launch<Finish, true, backward>(stream, product);
        }
    });
}

}  // namespace loratrain::kernels
