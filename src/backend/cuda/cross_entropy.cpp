#include "kernels/cross_entropy.h"

#include <cstddef>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "kernels/elementwise.h"

namespace loratrain {

namespace {

// kernels/ includes nothing of src/.
static_assert(sizeof(kernels::LaneStatistics) == sizeof(ShardStatistics));
static_assert(offsetof(kernels::LaneStatistics, sum) == offsetof(ShardStatistics, sum));
static_assert(offsetof(kernels::LaneStatistics, target) == offsetof(ShardStatistics, target));
static_assert(offsetof(kernels::LaneStatistics, standing) == offsetof(ShardStatistics, standing));
static_assert(offsetof(kernels::LaneStatistics, logits) == offsetof(ShardStatistics, logits));

kernels::CrossEntropyParams params_of(const CrossEntropy& op) {
    kernels::CrossEntropyParams params;
    params.logits = matrix_of(op.logits);
    params.targets = op.targets;
    params.scales = op.scales;
    params.bins = op.bins;
    params.loss_sums = op.loss_sums;
    params.wrong_counts = op.wrong_counts;
    params.gradient = op.gradient;
    params.weights = op.weights;
    params.soft_cap = op.soft_cap;
    params.form = {op.form.label_smoothing, op.form.z_loss, op.form.dft, op.form.entropy};
    return params;
}

kernels::LaneLogits lane_logits(const ShardedCrossEntropy& op) {
    return {params_of(op.of), op.first_column,
            op.columns,       op.lane,
            op.lanes,         reinterpret_cast<kernels::LaneStatistics*>(op.statistics)};
}

}  // namespace

void CudaBackend::reserve_row_losses(kernels::CrossEntropyParams& params) {
    const auto rows = static_cast<std::size_t>(params.logits.rows);
    auto* workspace =
        static_cast<char*>(reserve_workspace(rows * std::size_t{kernels::cross_entropy_row_bytes}));
    params.row_losses = reinterpret_cast<double*>(workspace);
    params.row_wrong = reinterpret_cast<std::int32_t*>(workspace + rows * sizeof(double));
}

void CudaBackend::soft_cap(const SoftCap& op) {
    require_compute({&op.x});
    CUDA_CHECK(kernels::soft_cap(stream_, matrix_of(op.x), op.cap));
}

void CudaBackend::cross_entropy(const CrossEntropy& op) {
    require_compute({&op.logits});
    kernels::CrossEntropyParams params = params_of(op);
    reserve_row_losses(params);
    CUDA_CHECK(kernels::cross_entropy(stream_, params));
}

void CudaBackend::shard_statistics(const ShardedCrossEntropy& op) {
    require_compute({&op.of.logits});
    LORATRAIN_CHECK(op.of.soft_cap == 0.0F, "a soft cap of logits that lanes share");
    CUDA_CHECK(kernels::lane_statistics(stream_, lane_logits(op)));
}

void CudaBackend::sharded_cross_entropy(const ShardedCrossEntropy& op) {
    require_compute({&op.of.logits});
    kernels::LaneLogits params = lane_logits(op);
    reserve_row_losses(params.of);
    CUDA_CHECK(kernels::lane_cross_entropy(stream_, params));
}

}  // namespace loratrain
