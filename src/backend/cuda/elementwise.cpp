#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "kernels/activations.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"

namespace loratrain {

namespace {

void check_groups(std::int64_t cols, std::int64_t groups) {
    LORATRAIN_CHECK(groups >= 1 && cols % groups == 0, "rms_norm of ", cols, " columns in ", groups,
                    " groups");
}

static_assert(kernels::swiglu_limit == swiglu_limit);
static_assert(kernels::swiglu_alpha == swiglu_alpha);

}  // namespace

kernels::Gate gate_of(Activation activation) {
    switch (activation) {
        case Activation::silu:
            return kernels::Gate::silu;
        case Activation::sigmoid:
            return kernels::Gate::sigmoid;
        case Activation::clamped_swiglu:
            return kernels::Gate::clamped_swiglu;
        default:
            return kernels::Gate::gelu_tanh;
    }
}

kernels::SwiGluBackwardParams swiglu_backward_params(const SwiGluBackward& op) {
    return {matrix_of(op.gate),    matrix_of(op.up),       matrix_of(op.dh),
            matrix_of(op.dgate),   matrix_of(op.dup),      matrix_of(op.h),
            codes_of(op.codes.to), op.codes.column_scales, gate_of(op.activation)};
}

void CudaBackend::rms_norm(const RmsNorm& op) {
    require_compute({&op.x, &op.y});
    check_groups(op.x.cols, op.groups);
    kernels::RmsNormParams params{matrix_of(op.x), op.weight,       op.eps,
                                  op.groups,       matrix_of(op.y), codes_of(op.codes.to),
                                  op.weight_offset};
    if (op.added.data != nullptr) {
        require_compute({&op.added});
        LORATRAIN_CHECK(!op.codes.are_wanted(), "codes of a norm and what it is added to");
        params.added = matrix_of(op.added);
    }
    CUDA_CHECK(kernels::rms_norm(stream_, params));
}

void CudaBackend::rms_norm_backward(const RmsNormBackward& op) {
    require_compute({&op.x, &op.dy, &op.dx});
    check_groups(op.x.cols, op.groups);
    kernels::RmsNormBackwardParams params{matrix_of(op.x), op.weight,        op.eps,
                                          op.groups,       matrix_of(op.dy), matrix_of(op.dx),
                                          op.accumulate};
    params.weight_offset = op.weight_offset;
    if (op.scaled.data != nullptr) {
        require_compute({&op.scaled});
        LORATRAIN_CHECK(op.groups == 1, "rows scaled by ", op.groups, " groups of a norm");
        params.scaled = matrix_of(op.scaled);
    }
    CUDA_CHECK(kernels::rms_norm_backward(stream_, params));
}

void CudaBackend::rope(const Rope& op) {
    require_compute({&op.x});
    LORATRAIN_CHECK(op.has_sizes_that_fit(), "rope of ", op.x.cols, " columns with head_dim ",
                    op.head_dim, ", of which ", op.rotated(), " are rotated and ",
                    op.scaled_columns, " columns scaled");
    CUDA_CHECK(kernels::rope(stream_, {matrix_of(op.x), op.head_dim, op.inv_freq, op.positions,
                                       op.backward, op.scaled_columns, op.scale_beta,
                                       op.scale_period, op.rotated(), op.interleaved, op.length}));
}

void CudaBackend::swiglu(const SwiGlu& op) {
    require_compute({&op.gate, &op.up, &op.h});
    CUDA_CHECK(kernels::swiglu(stream_, matrix_of(op.gate), matrix_of(op.up), matrix_of(op.h),
                               codes_of(op.codes.to), gate_of(op.activation)));
}

void CudaBackend::swiglu_backward(const SwiGluBackward& op) {
    require_compute({&op.gate, &op.up, &op.dh, &op.dgate, &op.dup});
    LORATRAIN_CHECK(!op.codes.are_wanted() || are_side_by_side(op.dgate, op.dup),
                    "codes of gradients that do not lie side by side");
    CUDA_CHECK(kernels::swiglu_backward(stream_, swiglu_backward_params(op)));
}

void CudaBackend::xielu(const Xielu& op) {
    require_compute({&op.x, &op.h});
    kernels::XieluParams params{matrix_of(op.x), op.shape.positive, op.shape.negative,
                                op.shape.linear, matrix_of(op.h)};
    params.codes = codes_of(op.codes.to);
    CUDA_CHECK(kernels::xielu(stream_, params));
}

void CudaBackend::xielu_backward(const XieluBackward& op) {
    require_compute({&op.x, &op.dh, &op.dx});
    kernels::XieluParams params{
        matrix_of(op.x), op.shape.positive, op.shape.negative, op.shape.linear, {}};
    if (op.h.data != nullptr) params.h = matrix_of(op.h);
    params.dh = matrix_of(op.dh);
    params.dx = matrix_of(op.dx);
    params.codes = codes_of(op.codes.to);
    params.column_scales = op.codes.column_scales;
    CUDA_CHECK(kernels::xielu_backward(stream_, params));
}

}  // namespace loratrain
