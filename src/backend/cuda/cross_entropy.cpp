#include "kernels/cross_entropy.h"

#include <cstddef>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/staging_ring.h"
#include "base/error.h"
#include "kernels/choose_tokens.h"
#include "kernels/elementwise.h"

namespace loratrain {

namespace {

// kernels/ includes nothing of src/.
static_assert(sizeof(kernels::LaneStatistics) == sizeof(ShardStatistics));
static_assert(offsetof(kernels::LaneStatistics, sum) == offsetof(ShardStatistics, sum));
static_assert(offsetof(kernels::LaneStatistics, target) == offsetof(ShardStatistics, target));
static_assert(offsetof(kernels::LaneStatistics, standing) == offsetof(ShardStatistics, standing));
static_assert(offsetof(kernels::LaneStatistics, logits) == offsetof(ShardStatistics, logits));
static_assert(sizeof(kernels::TokenDraw) == sizeof(TokenDraw));
static_assert(offsetof(kernels::TokenDraw, top_p) == offsetof(TokenDraw, top_p));
static_assert(offsetof(kernels::TokenDraw, uniform) == offsetof(TokenDraw, uniform));
static_assert(sizeof(kernels::ChosenToken) == sizeof(ChosenToken));
static_assert(offsetof(kernels::ChosenToken, logprob) == offsetof(ChosenToken, logprob));
static_assert(offsetof(kernels::ChosenToken, token) == offsetof(ChosenToken, token));

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
    CUDA_CHECK(kernels::lane_statistics(stream_, lane_logits(op)));
}

void CudaBackend::sharded_cross_entropy(const ShardedCrossEntropy& op) {
    require_compute({&op.of.logits});
    kernels::LaneLogits params = lane_logits(op);
    reserve_row_losses(params.of);
    CUDA_CHECK(kernels::lane_cross_entropy(stream_, params));
}

void CudaBackend::choose_tokens(const ChooseTokens& op) {
    require_compute({&op.logits});
    LORATRAIN_CHECK(std::ssize(op.draws) == op.logits.rows, op.draws.size(), " draws for ",
                    op.logits.rows, " rows of logits");
    if (op.draws.empty()) return;
    const void* draws = tables_->upload_table(op.draws.data(), op.draws.size_bytes());
    CUDA_CHECK(kernels::choose_tokens(
        stream_, {matrix_of(op.logits), static_cast<const kernels::TokenDraw*>(draws),
                  reinterpret_cast<kernels::ChosenToken*>(op.tokens)}));
}

}  // namespace loratrain
