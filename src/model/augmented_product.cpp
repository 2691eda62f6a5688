#include "model/group_product.h"

namespace loratrain {

namespace {

class AugmentedProduct : public GroupProduct {
  public:
    explicit AugmentedProduct(const ProductParts& parts)
        : view_(parts.view),
          workspace_(parts.workspace),
          pads_(parts.pads),
          backend_(parts.backend) {}

    std::optional<FactorPads::Pads> kept_pads(const GroupSite& site) override {
        const WeightView& matrix = site.weights.matrix.view;
        if (matrix.residence != WeightResidence::resident) return {};
        const MatrixShape shape = augmented_shape(view_, site.group);
        return pads_in(site, gemm_matrix(matrix, shape, nullptr, backend_));
    }

    TensorView pad_behind(const GroupSite& site, const TensorView& x,
                          const TensorView& s) const override {
        const std::int64_t columns = column_blocks(view_, site.group) * site.rows.width;
        const TensorView pad = x.col_range(x.cols, columns);
        return s.data == pad.data ? TensorView{} : pad;
    }

    Scratch forward(const GroupSite& site, const Operand& of, const PerLinear& y,
                    const PerLinear& s, std::int64_t width, const TensorView& residual) override {
        const TensorView& x = of.view;
        Scratch m = read_with(site, width);
        const std::int64_t blocks = column_blocks(view_, site.group);
        const TensorView with_s = x.col_range(0, x.cols + blocks * width);
        std::int64_t row = 0;
        const auto multiply = [&](const TensorView& to) {
            multiply_rows(backend_, with_s, m->row_range(row, to.cols).col_range(0, with_s.cols),
                          to, residual);
            row += to.cols;
        };
        if (blocks > 1) {
            for (const TensorView& wide : joined(y, site.count())) multiply(wide);
            return m;
        }
        for (std::size_t i = 0; i < static_cast<std::size_t>(site.count()); ++i) {
            if (width > 0 && i > 0) {
                backend_.copy({x.col_range(x.cols, width), s[i].col_range(0, width)});
            }
            multiply(y[i]);
        }
        return m;
    }

    Scratch backward(const GroupSite& site, const Operand& of, const TensorView& dx,
                     std::int64_t pads, bool accumulate) override {
        Scratch m = read_with(site, pads);
        const std::int64_t columns = of.view.cols + pads;
        Gemm op{of.view.col_range(0, columns), m->row_range(0, columns).col_range(0, dx.cols), dx};
        op.beta = accumulate ? 1.0F : 0.0F;
        backend_.gemm(op);
        return m;
    }

    Scratch read_matrix(const GroupSite& site) override {
        GroupWeights& weights = site.weights;
        if (weights.matrix.view.residence == WeightResidence::staged) weights.packed_width = -1;
        return workspace_.matrix_of(weights.matrix.view, augmented_shape(view_, site.group));
    }

  private:
    FactorPads::Pads pads_in(const GroupSite& site, const TensorView& m) const {
        const LinearGroupShape& shape = site.weights.shape;
        const std::int64_t width = site.rows.width;
        const std::int64_t columns = column_blocks(view_, site.group) * width;
        return {m.row_range(0, shape.out).col_range(shape.in, columns),
                m.row_range(shape.out, shape.count * width).col_range(0, shape.in)};
    }

    /// read_matrix(), with the factors where there are columns of them.
    Scratch read_with(const GroupSite& site, std::int64_t columns) {
        Scratch m = read_matrix(site);
        if (columns > 0) pads_.pack(site, pads_in(site, m));
        return m;
    }

    ReplicaView view_;
    const Workspace& workspace_;
    FactorPads& pads_;
    Backend& backend_;
};

}  // namespace

std::unique_ptr<GroupProduct> augmented_product(const ProductParts& parts) {
    return std::make_unique<AugmentedProduct>(parts);
}

}  // namespace loratrain
