#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"
#include "base/expert_limits.h"

namespace loratrain {

namespace {

void check_same(const char* op, const TensorView& x, const TensorView& y) {
    LORATRAIN_CHECK(x.rows == y.rows && x.cols == y.cols, op, " of [", x.rows, ", ", x.cols,
                    "] and [", y.rows, ", ", y.cols, "]");
}

void check_target(const char* op, const TensorView& target, std::int64_t rows, std::int64_t cols) {
    LORATRAIN_CHECK(target.rows == rows && target.cols == cols, op, " of [", rows, ", ", cols,
                    "] to [", target.rows, ", ", target.cols, "]");
}

}  // namespace

void check_shapes(const Copy& op) {
    check_target("copy", op.target, op.source.rows, op.source.cols);
}

void check_shapes(const Add& op) {
    check_target("add", op.y, op.x.rows, op.x.cols);
}

void check_shapes(const GatherRows& op) {
    LORATRAIN_CHECK(op.y.cols == op.table.cols, "gather_rows of ", op.table.cols, " columns into ",
                    op.y.cols);
}

void check_shapes(const ScatterRows& op) {
    LORATRAIN_CHECK(op.y.cols == op.x.cols, "scatter_rows of ", op.x.cols, " columns into ",
                    op.y.cols);
    LORATRAIN_CHECK(op.y.dtype == op.x.dtype, "scatter_rows of ", to_string(op.x.dtype), " into ",
                    to_string(op.y.dtype));
}

void check_shapes(const QuantizeRows& op) {
    LORATRAIN_CHECK(op.x.rows == op.to.rows && op.x.cols == op.to.cols, "quantize_rows of [",
                    op.x.rows, ", ", op.x.cols, "] into [", op.to.rows, ", ", op.to.cols, "]");
}

void check_shapes(const TransposeCodes& op) {
    LORATRAIN_CHECK(op.to.rows == op.from.cols && op.to.cols == op.from.rows,
                    "transpose_codes of [", op.from.rows, ", ", op.from.cols, "] into [",
                    op.to.rows, ", ", op.to.cols, "]");
}

void check_shapes(const Dequantize& op) {
    check_target("dequantize", op.target, op.weights.rows, op.weights.cols);
}

void check_shapes(const DoraScale& op) {
    check_same("dora_scale", op.target, op.source);
}

void check_shapes(const DoraGradMagnitude& op) {
    check_same("dora_grad_magnitude", op.dy, op.v);
}

void check_shapes(const DropRows& op) {
    check_same("drop_rows", op.y, op.x);
    LORATRAIN_CHECK(op.slot.dropout_column % 8 == 0, "dropout from column ", op.slot.dropout_column,
                    " of a linear's input");
}

void check_shapes(const Route& op) {
    const ExpertRoutes& to = op.to;
    LORATRAIN_CHECK(op.logits.rows == to.tokens && op.logits.cols == to.experts &&
                        to.experts <= most_experts && to.per_token >= 1 &&
                        to.per_token <= std::min(to.experts, most_experts_per_token),
                    "route of [", op.logits.rows, ", ", op.logits.cols, "] for ", to.tokens,
                    " rows to ", to.per_token, " of ", to.experts, " experts");
}

void check_shapes(const CombineExperts& op) {
    check_same("combine_experts", op.y, op.added);
    LORATRAIN_CHECK(
        op.y.rows == op.routes.tokens && op.x.rows == op.routes.copies() && op.x.cols == op.y.cols,
        "combine_experts of [", op.x.rows, ", ", op.x.cols, "] to [", op.y.rows, ", ", op.y.cols,
        "]");
}

void check_shapes(const WeighExperts& op) {
    check_same("weigh_experts", op.inner, op.product);
    LORATRAIN_CHECK(op.inner.rows == op.routes.copies(), "weigh_experts of ", op.inner.rows,
                    " rows, not ", op.routes.copies());
}

void check_shapes(const WeighRows& op) {
    LORATRAIN_CHECK(op.x.rows == op.routes.copies(), "weigh_rows of ", op.x.rows, " rows, not ",
                    op.routes.copies());
}

void check_shapes(const ExpertLora& op) {
    LORATRAIN_CHECK(op.wide.rows == op.routes.copies() && op.narrow.rows == op.routes.copies(),
                    "LoRA in experts of [", op.wide.rows, ", ", op.wide.cols, "] and [",
                    op.narrow.rows, ", ", op.narrow.cols, "] for ", op.routes.copies(), " rows");
    for (const LoraSlot& slot : op.slots) {
        LORATRAIN_CHECK(
            slot.rank == 0 || (slot.dropout == 0 && slot.column + slot.rank <= op.narrow.cols),
            "LoRA in experts of rank ", slot.rank, " in column ", slot.column, " of ",
            op.narrow.cols);
    }
}

void check_shapes(const RouteBackward& op) {
    LORATRAIN_CHECK(op.d_logits.rows == op.routes.tokens && op.d_logits.cols == op.routes.experts,
                    "route_backward to [", op.d_logits.rows, ", ", op.d_logits.cols, "]");
}

}  // namespace loratrain
