#include "kernels/cross_entropy.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "base/device_memory.h"

namespace loratrain {

void CudaBackend::cross_entropy(const CrossEntropy& op) {
    require_compute({&op.logits});
    const auto rows = static_cast<std::size_t>(op.logits.rows);
    auto* workspace =
        static_cast<char*>(reserve_workspace(rows * std::size_t{device_memory::cross_entropy_row}));
    kernels::CrossEntropyParams params;
    params.logits = matrix_of(op.logits);
    params.targets = op.targets;
    params.scales = op.scales;
    params.bins = op.bins;
    params.loss_sums = op.loss_sums;
    params.wrong_counts = op.wrong_counts;
    params.gradient = op.gradient;
    params.row_losses = reinterpret_cast<double*>(workspace);
    params.row_wrong = reinterpret_cast<std::int32_t*>(workspace + rows * sizeof(double));
    CUDA_CHECK(kernels::cross_entropy(stream_, params));
}

}  // namespace loratrain
