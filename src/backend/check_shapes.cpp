#include <algorithm>

#include "backend/backend.h"
#include "base/error.h"
#include "base/operators.h"

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

bool holds_heads(const TensorView& view, std::int64_t heads, std::int64_t width,
                 std::int64_t stride) {
    return heads == 0 || (stride >= width && (heads - 1) * stride + width <= view.cols);
}

}  // namespace

void check_shapes(const Copy& op) {
    check_target("copy", op.target, op.source.rows, op.source.cols);
}

void check_shapes(const CopyHeads& op) {
    const bool alike = op.source_stride == 0 && op.source.cols >= op.width;
    LORATRAIN_CHECK(op.target.rows == op.source.rows && op.target.dtype == op.source.dtype &&
                        holds_heads(op.target, op.heads, op.width, op.target_stride) &&
                        (alike || holds_heads(op.source, op.heads, op.width, op.source_stride)),
                    "copies of ", op.heads, " heads of ", op.width, " from [", op.source.rows, ", ",
                    op.source.cols, "] to [", op.target.rows, ", ", op.target.cols, "]");
}

void check_shapes(const SumHeads& op) {
    LORATRAIN_CHECK(op.target.rows == op.source.rows &&
                        holds_heads(op.source, op.heads, op.target.cols, op.source_stride),
                    "sums of ", op.heads, " heads of [", op.source.rows, ", ", op.source.cols,
                    "] to [", op.target.rows, ", ", op.target.cols, "]");
}

void check_shapes(const CausalConv& op) {
    check_same("causal_conv", op.y, op.x);
    LORATRAIN_CHECK(op.width >= 1 && op.width <= most_conv_width, "causal_conv of width ", op.width,
                    ", not 1 to ", most_conv_width);
}

void check_shapes(const CachedConv& op) {
    check_shapes(op.of);
    check_target("cached_conv", op.kept, op.of.rows.samples * (op.of.width - 1), op.of.x.cols);
}

void check_shapes(const CausalConvBackward& op) {
    CausalConv of = op.forward;
    of.y = op.dx;
    check_shapes(of);
    check_same("causal_conv_backward", op.dy, op.dx);
}

void check_shapes(const DeltaGates& op) {
    check_same("delta_gates", op.b, op.a);
    check_same("delta_gates", op.g, op.a);
    check_same("delta_gates", op.beta, op.a);
}

void check_shapes(const DeltaGatesBackward& op) {
    const TensorView& a = op.forward.a;
    for (const TensorView& view : {op.forward.b, op.d_g, op.d_beta, op.da, op.db}) {
        check_same("delta_gates_backward", view, a);
    }
}

void check_shapes(const DeltaRule& op) {
    const bool heads = op.key_heads > 0 && op.value_heads > 0 &&
                       op.value_heads % op.key_heads == 0 && op.q.cols % op.key_heads == 0 &&
                       op.v.cols % op.value_heads == 0;
    LORATRAIN_CHECK(heads, "delta_rule of ", op.q.cols, " and ", op.v.cols, " columns with ",
                    op.key_heads, " key and ", op.value_heads, " value heads");
    check_same("delta_rule", op.k, op.q);
    check_same("delta_rule", op.o, op.v);
    for (const TensorView& view : {op.g, op.beta}) {
        check_target("delta_rule", view, op.q.rows, op.value_heads);
    }
}

void check_shapes(const DeltaRuleBackward& op) {
    DeltaRule of = op.forward;
    of.o = op.d_o;
    check_shapes(of);
    check_same("delta_rule_backward", op.dq, of.q);
    check_same("delta_rule_backward", op.dk, of.k);
    check_same("delta_rule_backward", op.dv, of.v);
    check_same("delta_rule_backward", op.d_g, of.g);
    check_same("delta_rule_backward", op.d_beta, of.g);
}

void check_shapes(const GatedNorm& op) {
    check_same("gated_norm", op.z, op.o);
    check_same("gated_norm", op.y, op.o);
    LORATRAIN_CHECK(op.heads > 0 && op.o.cols % op.heads == 0, "gated_norm of ", op.o.cols,
                    " columns in ", op.heads, " heads");
}

void check_shapes(const GatedNormBackward& op) {
    GatedNorm of = op.forward;
    if (of.y.data == nullptr) of.y = op.dy;
    check_shapes(of);
    check_same("gated_norm_backward", op.dy, of.o);
    check_same("gated_norm_backward", op.d_o, of.o);
    check_same("gated_norm_backward", op.d_z, of.o);
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
    if (op.added.data != nullptr) check_same("dora_scale", op.target, op.added);
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
    LORATRAIN_CHECK(op.logits.rows == to.tokens && op.logits.cols == to.routed() &&
                        to.routed() <= most_experts && to.per_token >= 1 &&
                        to.per_token <= std::min(to.routed(), most_experts_per_token),
                    "route of [", op.logits.rows, ", ", op.logits.cols, "] for ", to.tokens,
                    " rows to ", to.per_token, " of ", to.routed(), " experts");
    const std::int64_t of_group = to.routed() / std::max<std::int64_t>(1, op.groups);
    LORATRAIN_CHECK(op.groups >= 1 && op.groups <= most_expert_groups &&
                        of_group * op.groups == to.routed() && (op.groups == 1 || of_group >= 2) &&
                        op.used_groups >= 1 && op.used_groups <= op.groups &&
                        op.used_groups * of_group >= to.per_token,
                    "route to ", to.per_token, " of ", to.routed(), " experts in ", op.used_groups,
                    " of ", op.groups, " groups");
}

namespace {

void check_codes(const ExpertCodes& codes, const TensorView& w, std::int64_t columns,
                 bool backward) {
    if (!codes.are_used()) return;
    const bool fit =
        codes.weights.rows == w.rows && codes.weights.cols == w.cols &&
        (!backward || codes.transposed.rows * codes.transposed.cols == w.rows * w.cols) &&
        codes.rows.cols >= columns;
    LORATRAIN_CHECK(fit, "codes of [", codes.weights.rows, ", ", codes.weights.cols,
                    "], and of rows of ", codes.rows.cols, " columns, for weights [", w.rows, ", ",
                    w.cols, "] and rows of ", columns);
}

}  // namespace

void check_shapes(const ExpertProduct& op) {
    check_codes(op.codes, op.w, op.x.cols, op.backward);
    const std::int64_t outputs = op.w.rows / std::max<std::int64_t>(1, op.routes.experts);
    const std::int64_t from = op.backward ? outputs : op.w.cols;
    const std::int64_t to = op.backward ? op.w.cols : outputs;
    LORATRAIN_CHECK(op.w.rows == outputs * op.routes.experts && op.w.ld == op.w.cols &&
                        op.x.rows == op.routes.copies() && op.y.rows == op.routes.copies() &&
                        op.x.cols == from && op.y.cols == to,
                    "products of [", op.x.rows, ", ", op.x.cols, "] and weights [", op.w.rows, ", ",
                    op.w.cols, "] of ", op.routes.experts, " experts into [", op.y.rows, ", ",
                    op.y.cols, "] for ", op.routes.copies(), " rows");
    LORATRAIN_CHECK(!op.backward || op.bias == nullptr, "a product backward has no bias to add");
}

void check_shapes(const ExpertGateUp& op) {
    check_codes(op.codes, op.w, op.h.cols, false);
    const std::int64_t f = op.gate_up.cols / 2;
    LORATRAIN_CHECK(op.h.rows == op.routes.tokens && op.w.cols == op.h.cols &&
                        op.w.rows == op.routes.experts * 2 * f && op.w.ld == op.w.cols &&
                        op.gate_up.rows == op.routes.copies() && op.gate_up.cols == 2 * f,
                    "gates and ups of [", op.h.rows, ", ", op.h.cols, "] and weights [", op.w.rows,
                    ", ", op.w.cols, "] into [", op.gate_up.rows, ", ", op.gate_up.cols, "] for ",
                    op.routes.copies(), " rows");
    LORATRAIN_CHECK(
        op.product.data == nullptr || (op.product.rows == op.gate_up.rows && op.product.cols == f),
        "product of gates and ups into [", op.product.rows, ", ", op.product.cols, "]");
}

void check_shapes(const ExpertDownBackward& op) {
    check_codes(op.codes, op.w, op.dy.cols, true);
    check_same("expert_down_backward", op.gate_up, op.d_gate_up);
    LORATRAIN_CHECK(op.dy.rows == op.routes.tokens && op.w.rows == op.routes.experts * op.dy.cols &&
                        op.w.ld == op.w.cols && op.gate_up.rows == op.routes.copies() &&
                        op.gate_up.cols == 2 * op.w.cols,
                    "gradients of [", op.dy.rows, ", ", op.dy.cols, "] and weights [", op.w.rows,
                    ", ", op.w.cols, "] into [", op.gate_up.rows, ", ", op.gate_up.cols, "] for ",
                    op.routes.copies(), " rows");
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
    const std::int64_t wide_rows = op.gathered ? op.routes.tokens : op.routes.copies();
    LORATRAIN_CHECK(op.wide.rows == wide_rows && op.narrow.rows == op.routes.copies(),
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
    LORATRAIN_CHECK(op.d_logits.rows == op.routes.tokens && op.d_logits.cols == op.routes.routed(),
                    "route_backward to [", op.d_logits.rows, ", ", op.d_logits.cols, "]");
}

}  // namespace loratrain
