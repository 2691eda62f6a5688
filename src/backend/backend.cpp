#include "backend/backend.h"

#include <array>

#include "base/operators.h"

namespace loratrain {

Buffer::~Buffer() {
    if (owner_ != nullptr) owner_->release(data_, bytes_);
}

void run_in_parts(Backend& backend, const LoraGatedForward& op) {
    backend.swiglu(op.product);
    backend.lora_shrink({op.product.h, {&op.down, 1}, op.rows, op.again});
}

void run_in_parts(Backend& backend, const LoraGatedBackward& op) {
    if (op.adds_down) {
        backend.lora_expand_backward({op.product.dh, {&op.down, 1}, op.gate.rows, true});
    }
    backend.swiglu_backward(op.product);
    backend.lora_grad_a({op.product.h, {&op.down, 1}, op.gate.rows});
    const LoraBackward both[] = {op.gate, op.up};
    backend.lora_backward_group(both);
}

namespace {

/// The product of an expert's rows, which become codes in their own rows of the scratch.
void multiply_codes(Backend& backend, const ExpertProduct& op, std::int64_t expert,
                    std::int64_t first, std::int64_t count) {
    const std::int64_t n = op.w.rows / op.routes.experts;
    const std::int64_t k = op.w.cols;
    const Fp8Rows weights = op.codes.weights.row_range(expert * n, n);
    const Fp8Rows rows = op.codes.of_rows(op.routes.copies(), op.x.cols).row_range(first, count);
    backend.quantize_rows(
        {op.x.row_range(first, count), op.backward ? weights.scales : nullptr, rows});
    GemmFp8 gemm{rows, op.backward ? op.codes.transposed.row_range(expert * k, k) : weights,
                 op.y.row_range(first, count)};
    gemm.fast = !op.backward;
    backend.gemm_fp8(gemm);
}

}  // namespace

void run_in_parts(Backend& backend, const ExpertProduct& op) {
    const ExpertRoutes& routes = op.routes;
    std::array<std::int32_t, most_experts + 1> offsets;
    backend.download(offsets.data(), routes.offsets,
                     static_cast<std::size_t>(routes.experts + 1) * sizeof(std::int32_t));
    const std::int64_t rows = op.w.rows / routes.experts;
    for (std::int64_t expert = 0; expert < routes.experts; ++expert) {
        const std::int64_t first = offsets[static_cast<std::size_t>(expert)];
        const std::int64_t count = offsets[static_cast<std::size_t>(expert) + 1] - first;
        if (count == 0) continue;
        if (op.codes.are_used()) {
            multiply_codes(backend, op, expert, first, count);
            continue;
        }
        Gemm gemm{op.x.row_range(first, count), op.w.row_range(expert * rows, rows),
                  op.y.row_range(first, count)};
        gemm.transpose_b = !op.backward;
        backend.gemm(gemm);
    }
    for (const ExpertLora& added : op.added) backend.widen_experts(added);
}

void run_in_parts(Backend& backend, const ExpertGateUp& op) {
    backend.gather_rows({op.rows, op.h, op.routes.rows});
    backend.multiply_experts(
        {op.rows, op.w, op.gate_up, op.routes, false, op.added, op.codes, op.bias});
    if (op.product.data == nullptr) return;
    const std::int64_t f = op.product.cols;
    backend.swiglu(
        {op.gate_up.col_range(0, f), op.gate_up.col_range(f, f), op.product, {}, op.activation});
}

void run_in_parts(Backend& backend, const ExpertDownBackward& op) {
    const std::int64_t f = op.w.cols;
    const TensorView gate = op.gate_up.col_range(0, f);
    const TensorView up = op.gate_up.col_range(f, f);
    backend.gather_rows({op.rows, op.dy, op.routes.rows});
    backend.multiply_experts({op.rows, op.w, op.inner, op.routes, true, op.added, op.codes});
    backend.swiglu({gate, up, op.product, {}, op.activation});
    backend.weigh_experts({op.inner, op.product, op.d_weights, op.routes, op.dy, op.bias});
    backend.swiglu_backward({gate,
                             up,
                             op.inner,
                             op.d_gate_up.col_range(0, f),
                             op.d_gate_up.col_range(f, f),
                             {},
                             {},
                             op.activation});
}

}  // namespace loratrain
