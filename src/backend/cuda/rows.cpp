#include "kernels/rows.h"

#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/staging_ring.h"
#include "kernels/elementwise.h"
#include "kernels/scalars.h"

namespace loratrain {

void CudaBackend::copy(const TensorView& target, const TensorView& source) {
    LORATRAIN_CHECK(target.rows == source.rows && target.cols == source.cols, "copy of [",
                    source.rows, ", ", source.cols, "] to [", target.rows, ", ", target.cols, "]");
    CUDA_CHECK(kernels::copy(stream_, matrix_of(target), matrix_of(source)));
}

void CudaBackend::add_bias(const TensorView& y, const void* bias) {
    require_compute({&y});
    CUDA_CHECK(kernels::add_bias(stream_, matrix_of(y), bias));
}

void CudaBackend::add(const TensorView& y, const TensorView& x) {
    require_compute({&y, &x});
    LORATRAIN_CHECK(y.rows == x.rows && y.cols == x.cols, "add of [", x.rows, ", ", x.cols,
                    "] to [", y.rows, ", ", y.cols, "]");
    CUDA_CHECK(kernels::add(stream_, matrix_of(y), matrix_of(x)));
}

void CudaBackend::gather_rows(const TensorView& y, const TensorView& table, const std::int32_t* ids,
                              float scale) {
    LORATRAIN_CHECK(y.cols == table.cols, "gather_rows of ", table.cols, " columns into ", y.cols);
    CUDA_CHECK(kernels::gather_rows(stream_, matrix_of(y), matrix_of(table), ids, scale));
}

void CudaBackend::scatter_rows(const TensorView& y, const TensorView& x, const std::int32_t* ids) {
    LORATRAIN_CHECK(y.cols == x.cols, "scatter_rows of ", x.cols, " columns into ", y.cols);
    LORATRAIN_CHECK(y.dtype == x.dtype, "scatter_rows of ", to_string(x.dtype), " into ",
                    to_string(y.dtype));
    CUDA_CHECK(kernels::scatter_rows(stream_, matrix_of(y), matrix_of(x), ids));
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
