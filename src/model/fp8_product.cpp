#include "model/group_product.h"

namespace loratrain {

namespace {

class Fp8Product : public GroupProduct {
  public:
    explicit Fp8Product(const ProductParts& parts)
        : workspace_(parts.workspace), pads_(parts.pads), backend_(parts.backend) {}

    RowCodes coding_of_input(std::int64_t tokens, std::int64_t columns) const override {
        return {workspace_.codes(tokens, columns)};
    }
    RowCodes coding_of_gradient(const GroupSite& site, std::int64_t tokens) const override {
        return {workspace_.codes(tokens, site.weights.shape.out), site.weights.fp8.codes.scales};
    }

    std::optional<FactorPads::Pads> kept_pads(const GroupSite& site) override {
        return pads_of(site);
    }

    Scratch forward(const GroupSite& site, const Operand& x, const PerLinear& y, const PerLinear& s,
                    std::int64_t width, const TensorView& residual) override {
        TensorView added = residual;
        if (width > 0) {
            const TensorView b = packed(site).b;
            std::int64_t row = 0;
            for (std::size_t i = 0; i < static_cast<std::size_t>(site.count()); ++i) {
                multiply_rows(backend_, s[i].col_range(0, width), b.row_range(row, y[i].cols), y[i],
                              residual);
                row += y[i].cols;
            }
            added = {};
        }
        const Fp8Rows codes = codes_of(x, coding_of_input(x.view.rows, x.view.cols));
        std::int64_t row = 0;
        for (const TensorView& wide : joined(y, site.count())) {
            GemmFp8 op{codes, site.weights.fp8.codes.row_range(row, wide.cols), wide};
            op.beta = width > 0 || residual.data != nullptr ? 1.0F : 0.0F;
            op.d = added;
            op.fast = true;
            backend_.gemm_fp8(op);
            row += wide.cols;
        }
        return {};
    }

    Scratch backward(const GroupSite& site, const Operand& dy, const TensorView& dx,
                     std::int64_t pads, bool accumulate) override {
        const Fp8Weights& weights = site.weights.fp8;
        if (pads > 0) {
            const TensorView a = packed(site).a;
            backend_.gemm({dy.view.col_range(dy.view.cols, pads), a, dx});
        }
        GemmFp8 op{codes_of(dy, coding_of_gradient(site, dy.view.rows)), weights.transposed, dx};
        Scratch staged;
        if (op.b.codes == nullptr) {
            staged = workspace_.staged();
            op.b.codes = static_cast<std::uint8_t*>(staged->data);
            backend_.transpose_codes({op.b, weights.codes});
        }
        op.beta = accumulate || pads > 0 ? 1.0F : 0.0F;
        backend_.gemm_fp8(op);
        return {};
    }

  private:
    static FactorPads::Pads pads_of(const GroupSite& site) {
        const std::int64_t width = site.rows.width;
        const Fp8Weights& weights = site.weights.fp8;
        return {weights.b_pad.col_range(0, width),
                weights.a_pad.row_range(0, site.count() * width)};
    }

    FactorPads::Pads packed(const GroupSite& site) {
        pads_.pack(site, pads_of(site));
        return pads_of(site);
    }

    Fp8Rows codes_of(const Operand& of, const RowCodes& coding) {
        if (of.codes.are_wanted()) return of.codes.to;
        backend_.quantize_rows({of.view, coding.column_scales, coding.to});
        return coding.to;
    }

    const Workspace& workspace_;
    FactorPads& pads_;
    Backend& backend_;
};

}  // namespace

std::unique_ptr<GroupProduct> fp8_product(const ProductParts& parts) {
    return std::make_unique<Fp8Product>(parts);
}

}  // namespace loratrain
