#include "model/weight_view.h"

#include "base/error.h"

namespace loratrain {

namespace {

void* moved(void* data, std::uint64_t bytes) {
    return static_cast<char*>(data) + bytes;
}

}  // namespace

WeightView WeightView::row_range(std::int64_t first, std::int64_t count) const {
    const WeightTraits& traits = traits_of(format);
    const auto before = static_cast<std::uint64_t>(first);
    WeightView view = *this;
    view.codes = moved(codes, before * code_bytes(traits, ld));
    if (scales != nullptr) view.scales = moved(scales, before * scale_bytes(traits, ld));
    view.rows = count;
    return view;
}

TensorView WeightView::dense() const {
    const WeightTraits& traits = traits_of(format);
    LORATRAIN_CHECK(traits.dense, "weights in ", traits.name);
    return {codes, *traits.dense, rows, cols, ld};
}

QuantizedMatrix WeightView::quantized() const {
    const WeightTraits& traits = traits_of(format);
    LORATRAIN_CHECK(!traits.dense, "weights in ", traits.name);
    return {format, source, codes, static_cast<const float*>(scales), rows, cols, ld};
}

WeightView weight_view(void* storage, WeightFormat format, WeightResidence residence,
                       const MatrixShape& stored, const MatrixShape& shape, SourceType source) {
    const WeightTraits& traits = traits_of(format);
    const WeightLayout layout = weight_layout(traits, stored);
    void* scales = traits.block == 0 ? nullptr : moved(storage, layout.scales);
    return {storage, scales, format, source, residence, shape.rows, shape.cols, stored.cols};
}

TensorView gemm_matrix(const WeightView& weights, const MatrixShape& shape, void* scratch,
                       Backend& backend) {
    if (weights.residence == WeightResidence::resident) {
        TensorView whole = weights.dense();
        whole.rows = shape.rows;
        whole.cols = shape.cols;
        return whole;
    }
    const TensorView wide = matrix(scratch, backend.compute_dtype(), shape.rows, shape.cols);
    const TensorView target = wide.row_range(0, weights.rows).col_range(0, weights.cols);
    if (traits_of(weights.format).dense) {
        backend.copy({target, weights.dense()});
    } else {
        backend.dequantize({target, weights.quantized()});
    }
    return wide;
}

}  // namespace loratrain
