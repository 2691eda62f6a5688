#include "kernels/elementwise.h"

#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/staging_ring.h"

namespace loratrain {

void CudaBackend::copy(const Copy& op) {
    check_shapes(op);
    CUDA_CHECK(kernels::copy(stream_, matrix_of(op.target), matrix_of(op.source)));
}

void CudaBackend::copy_heads(const CopyHeads& op) {
    check_shapes(op);
    CUDA_CHECK(kernels::copy_heads(
        stream_, {matrix_of(op.target), matrix_of(op.source), static_cast<std::int32_t>(op.heads),
                  static_cast<std::int32_t>(op.width), static_cast<std::int32_t>(op.target_stride),
                  static_cast<std::int32_t>(op.source_stride)}));
}

void CudaBackend::sum_heads(const SumHeads& op) {
    require_compute({&op.target, &op.source});
    check_shapes(op);
    CUDA_CHECK(kernels::sum_heads(stream_, matrix_of(op.target), matrix_of(op.source),
                                  static_cast<std::int32_t>(op.heads),
                                  static_cast<std::int32_t>(op.source_stride)));
}

void CudaBackend::add_bias(const AddBias& op) {
    if (op.y.dtype != DType::f32) require_compute({&op.y});
    CUDA_CHECK(kernels::add_bias(stream_, matrix_of(op.y), op.bias));
}

void CudaBackend::add(const Add& op) {
    require_compute({&op.y, &op.x});
    check_shapes(op);
    CUDA_CHECK(kernels::add(stream_, matrix_of(op.y), matrix_of(op.x)));
}

void CudaBackend::gather_rows(const GatherRows& op) {
    check_shapes(op);
    CUDA_CHECK(
        kernels::gather_rows(stream_, matrix_of(op.y), matrix_of(op.table), op.ids, op.scale));
}

void CudaBackend::scatter_rows(const ScatterRows& op) {
    check_shapes(op);
    CUDA_CHECK(kernels::scatter_rows(stream_, matrix_of(op.y), matrix_of(op.x), op.ids));
}

void CudaBackend::move_doubles(const MoveDoubles& op) {
    LORATRAIN_CHECK(op.target_index.size() == op.source_index.size(), "move_doubles of ",
                    op.source_index.size(), " to ", op.target_index.size(), " elements");
    if (op.target_index.empty()) return;
    std::vector<std::int32_t> both(op.target_index.begin(), op.target_index.end());
    both.insert(both.end(), op.source_index.begin(), op.source_index.end());
    const auto* indices = static_cast<const std::int32_t*>(
        tables_->upload_table(both.data(), both.size() * sizeof(std::int32_t)));
    const auto count = static_cast<std::int64_t>(op.target_index.size());
    CUDA_CHECK(kernels::move_doubles(stream_, op.target, op.source, indices, indices + count, count,
                                     op.add));
}

}  // namespace loratrain
