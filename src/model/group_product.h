#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/factor_pads.h"
#include "model/workspace.h"

namespace loratrain {

/// GEMMs of linear groups with the frozen weights and LoRA factors at once.

/// Input or gradient of a linear group. `codes` are its e4m3 codes if the op that wrote it made
/// them too (the RowCodes of that op); without them a product of codes makes them.
struct Operand {
    TensorView view;
    RowCodes codes = {};
};

/// Products of linear groups with their frozen W (numbers or codes) and with the LoRA factors in
/// the pads. Packs the factors first (FactorPads).
class GroupProduct {
  public:
    virtual ~GroupProduct() = default;

    /// Codes that the op which writes a group's input or gradient has to make too; empty: none.
    virtual RowCodes coding_of_input(std::int64_t /*tokens*/, std::int64_t /*columns*/) const {
        return {};
    }
    virtual RowCodes coding_of_gradient(const GroupSite& /*site*/, std::int64_t /*tokens*/) const {
        return {};
    }
    /// Where the group's factors stay between uses; none: they are packed at each use.
    virtual std::optional<FactorPads::Pads> kept_pads(const GroupSite& site) = 0;
    /// Columns behind x where forward() expects S: S of the first linear, or of all linears if
    /// their products are joined. Without data if forward() reads S from `s`.
    virtual TensorView pad_behind(const GroupSite& /*site*/, const TensorView& /*x*/,
                                  const TensorView& /*s*/) const {
        return {};
    }

    /// y_i = (residual +) X W_iᵀ, with S_i B_iᵀ of the first `width` columns. Returns the group's
    /// matrix as it was read, or nothing.
    virtual Scratch forward(const GroupSite& site, const Operand& x, const PerLinear& y,
                            const PerLinear& s, std::int64_t width, const TensorView& residual) = 0;
    /// dx = dY W + dS A, or dx += with `accumulate`; dS is in the `pads` columns behind dy.
    virtual Scratch backward(const GroupSite& site, const Operand& dy, const TensorView& dx,
                             std::int64_t pads, bool accumulate) = 0;
    virtual Scratch read_matrix(const GroupSite& /*site*/) { return {}; }
};

/// References that a product keeps; they outlive it.
struct ProductParts {
    const ReplicaView& view;
    const Workspace& workspace;
    FactorPads& pads;
    Backend& backend;
};
/// Product of [X | S] and of [dY | dS] with the augmented matrix (design.md "One augmented
/// matrix"): W and LoRA in one GEMM.
std::unique_ptr<GroupProduct> augmented_product(const ProductParts& parts);
/// Product for Plan::fp8_linears: multiplies e4m3 codes of X and of dY, with a scale per row
/// (quantize_rows), with codes of W (Fp8Weights). LoRA's part is computed from X, dY and S without
/// quantisation and written to Y or dX first; the product of codes is added to it.
///
/// LoRA as more columns of the codes (S in one e4m3 term under the scale of X's row, B in two)
/// would save about 3% of a step. It is not built, because it adds more than 0.002 to the cosine
/// error of single tensors' gradients (tests/bench/emulate_fp8.py; RESULTS.md there).
std::unique_ptr<GroupProduct> fp8_product(const ProductParts& parts);

/// The first `count` views, with views joined that are side by side in the same rows.
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
