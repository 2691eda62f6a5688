#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/factor_pads.h"
#include "model/workspace.h"

namespace loratrain {

/// A group's input or gradient, and its codes where the op that wrote it made them too (the
/// RowCodes that op was given); without them a product of codes makes them.
struct Operand {
    TensorView view;
    RowCodes codes = {};
};

/// The products of linear groups with their frozen W, plain or of codes, and with LoRA's factors in
/// the pads (FactorPads), which it packs first.
class GroupProduct {
  public:
    virtual ~GroupProduct() = default;

    /// Codes for the ops that write a group's input or gradient to make as well.
    virtual RowCodes coding_of_input(std::int64_t /*tokens*/, std::int64_t /*columns*/) const {
        return {};
    }
    virtual RowCodes coding_of_gradient(const GroupSite& /*site*/, std::int64_t /*tokens*/) const {
        return {};
    }
    /// Where the group's factors stay between uses.
    virtual std::optional<FactorPads::Pads> kept_pads(const GroupSite& site) = 0;
    /// The columns behind x where forward() expects S: that of the first linear, or of all of them
    /// where their products are joined. None where it reads S from `s`.
    virtual TensorView pad_behind(const GroupSite& /*site*/, const TensorView& /*x*/,
                                  const TensorView& /*s*/) const {
        return {};
    }

    /// y_i = (residual +) X W_iᵀ, with S_i B_iᵀ of the first `width` columns. Returns the group's
    /// matrix as it was read, or nothing.
    virtual Scratch forward(const GroupSite& site, const Operand& x, const PerLinear& y,
                            const PerLinear& s, std::int64_t width, const TensorView& residual) = 0;
    /// dx = (or += with accumulate) dY W, with dS A of the `pads` columns behind dy.
    virtual Scratch backward(const GroupSite& site, const Operand& dy, const TensorView& dx,
                             std::int64_t pads, bool accumulate) = 0;
    virtual Scratch read_matrix(const GroupSite& /*site*/) { return {}; }
};

/// What products are made of. All of it outlives them.
struct ProductParts {
    const ReplicaView& view;
    const Workspace& workspace;
    FactorPads& pads;
    Backend& backend;
};
/// [X | S] and [dY | dS] by the augmented matrix (design.md "One augmented matrix"): LoRA and W in
/// one GEMM.
std::unique_ptr<GroupProduct> augmented_product(const ProductParts& parts);
/// With Plan::fp8_linears: products of e4m3 codes of X and of dY, row by row (quantize_rows), and
/// of W (Fp8Weights). All that is LoRA's is computed from X, dY and S as they are, and stands in Y
/// or dX when the product of codes is added. As more columns of the codes (S in one e4m3 term under
/// the scale of X's row, B in two) it would save some 3% of a step; not built, as gradients of
/// single tensors are then off by more than 0.002 of a cosine beyond that
/// (tests/bench/emulate_fp8.py; RESULTS.md there).
std::unique_ptr<GroupProduct> fp8_product(const ProductParts& parts);

/// Columns of the first `count` that follow each other in the same rows as one.
inline std::vector<TensorView> joined(const PerLinear& y, int count) {
    std::vector<TensorView> wide;
    for (int i = 0; i < count; ++i) {
        const TensorView& next = y[static_cast<std::size_t>(i)];
        if (!wide.empty() && are_side_by_side(wide.back(), next)) {
            wide.back().cols += next.cols;
        } else {
            wide.push_back(next);
        }
    }
    return wide;
}

/// y = (residual +) x mᵀ.
inline void multiply_rows(Backend& backend, const TensorView& x, const TensorView& m,
                          const TensorView& y, const TensorView& residual) {
    Gemm op{x, m, y};
    op.transpose_b = true;
    op.beta = residual.data == nullptr ? 0.0F : 1.0F;
    op.d = residual;
    backend.gemm(op);
}

}  // namespace loratrain
