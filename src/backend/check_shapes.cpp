#include "backend/backend.h"
#include "base/error.h"

namespace loratrain {

namespace {

void check_same(const char* op, const TensorView& x, const TensorView& y) {
    LORATRAIN_CHECK(x.rows == y.rows && x.cols == y.cols, op, " of [", x.rows, ", ", x.cols,
                    "] and [", y.rows, ", ", y.cols, "]");
}

}  // namespace

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

}  // namespace loratrain
