#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/dora_linear.h"
#include "model/factor_pads.h"
#include "model/group_site.h"
#include "model/vera_linear.h"
#include "model/workspace.h"

namespace loratrain {

/// Forward and backward of one linear group with the adapters of a microbatch (BatchLoRA, mLoRA
/// section 3; design.md "One augmented matrix", which says when LoRA has operators of its own).
///
///   forward:   S_i = scale drop_i(X) A_iᵀ (rows of each adapter only),  Y_i = X W_iᵀ + S_i B_iᵀ +
///   b_i backward:  dS_i = scale dY_i B_i,  dB_i += dY_iᵀ S_i,  dA_i += dS_iᵀ drop_i(X),
///              dX = sum_i dY_i W_i + drop_i'(dS_i A_i)
///
/// With Plan::fp8_linears the products with W are those of e4m3 codes: of X and of dY s, row by row
/// (quantize_rows), and of W (Fp8Weights). All that is LoRA's is computed from X, dY and S as they
/// are, and stands in Y or dX when the product of codes is added. As more columns of the codes (S
/// in one e4m3 term under the scale of X's row, B in two) it would save some 3% of a step; not
/// built, as gradients of single tensors are then off by more than 0.002 of a cosine beyond that
/// (tests/bench/emulate_fp8.py; RESULTS.md there).
class LoraLinear {
  public:
    LoraLinear(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
               Backend& backend, const StageLanes& lanes);
    LoraLinear(const LoraLinear&) = delete;
    LoraLinear& operator=(const LoraLinear&) = delete;

    using Site = GroupSite;

    /// Packs the factors that have changed into the pads of all these groups at once, where pads
    /// stay between uses and no adapter of them is VeRA; the others' are packed at each use.
    void pack_all(std::span<const Site> sites);

    /// Whether Workspace::codes holds those of the operand already, as the op wrote them that made
    /// it: of x (coding_of_input), of dy (coding_of_gradient).
    enum class Codes : std::uint8_t { to_make, made };
    RowCodes coding_of_input(std::int64_t tokens, std::int64_t columns) const;
    RowCodes coding_of_gradient(const Site& site, std::int64_t tokens) const;

    /// Whether s and x's pad hold S already (shrink_gated).
    enum class Sums : std::uint8_t { to_make, made };

    /// x: [T, K] with column_blocks x saved_columns writable columns after it in each row; y[i]:
    /// [T, N_i]
    /// (`residual`, of groups of one linear: Y = residual + ...); s[i]: [T, R], kept for backward.
    /// s[0] may be x's own pad when the group has one linear.
    void forward(const Site& site, const TensorView& x, const std::array<TensorView, 3>& y,
                 const std::array<TensorView, 3>& s, const TensorView& residual,
                 Codes codes = Codes::to_make, Sums sums = Sums::to_make);

    /// Makes h of `product`, and S of forward of down, whose input x that h is, in one pass
    /// (LoraGatedForward). False, and nothing is done, where the backend gains nothing by that.
    bool shrink_gated(const Site& down, const SwiGlu& product, const TensorView& s);

    /// The S of forward alone, for a backward whose activations are recomputed.
    void shrink(const Site& site, const TensorView& x, const std::array<TensorView, 3>& s);

    /// Fills dS into the columns behind dy and adds to the gradients of B. dy: [T, N] (linears of
    /// the group side by side) with count * saved_columns writable columns after it.
    void backward_b(const Site& site, const TensorView& dy, const std::array<TensorView, 3>& s);
    /// Gradients of A from the group's input x and the dS of backward_b. With an RmsNorm's weight x
    /// is what was normed to be the input, and rows of dS are multiplied by its 1 / rms already.
    void backward_a(const Site& site, const TensorView& x, const TensorView& dy,
                    const void* norm_weight = nullptr, float weight_offset = 0.0F);
    /// The dS of all linears of the group, behind dy.
    static TensorView ds_of_group(const Site& site, const TensorView& dy);
    /// What lies around an MLP's activation; s: of gate and up; product: where there is a gate.
    struct Gated {
        const Site& down;
        TensorView d_down;
        const Site& gate_up;
        std::array<TensorView, 3> s;
        SwiGluBackward product;
    };
    /// swiglu_backward, backward_a of down and backward_b of gate and up in one pass
    /// (LoraGatedBackward), `adds_down`: with what backward_x of down has left out. False, and
    /// nothing is done, where the backend gains nothing by that, where there is no gate, where gate
    /// and up are not linears of their own, or adapters of the rows need more than these.
    bool backward_gated(const Gated& of, bool adds_down);
    /// Whether LoRA's part of backward_x of down is a pass of its own, which backward_gated spares.
    bool spares_down(const Gated& of);
    /// Some adapter of the rows is on the group.
    bool has_lora(const Site& site) const;
    /// Some adapter of the rows is DoRA and on the group.
    bool has_dora(const Site& site) const;
    /// Linear i has a bias, which its output holds.
    static bool has_bias_of(const Site& site, int i) {
        return site.weights.bias[static_cast<std::size_t>(i)].data() != nullptr;
    }
    /// DoRA's backward_m of linear i, where backward_x has not been or the group has one linear.
    /// y: the linear's output where that was kept. Whether x is lost.
    bool backward_m(const Site& site, int i, const TensorView& x, const TensorView& dy,
                    const std::array<TensorView, 3>& s, const TensorView& dropped,
                    const TensorView& y = {});
    /// Whether backward_x leaves out dS A, which follows (backward_gated).
    enum class Factors : std::uint8_t { multiplied, left_out };

    /// dx = gradient of the group's input, from dy and dS of backward_b. dx: [T, K]. With DoRA dy
    /// is lost in groups of several linears.
    void backward_x(const Site& site, const TensorView& dy, const TensorView& dx,
                    Codes codes = Codes::to_make, Factors factors = Factors::multiplied);

  private:
    /// Some adapter of the rows is VeRA.
    bool has_vera(const Site& site) const;
    /// Slots of linear i of the group, one per segment.
    const std::vector<LoraSlot>& gather_slots(const Site& site, int i);
    /// Of the gathered slots those whose A has no gradient. Whether others remain.
    bool leave_out_frozen(const Site& site);
    void gather_targets(const Site& site, const std::array<TensorView, 3>& s);
    /// The matrix to multiply with (gemm_matrix).
    TensorView prepare(const Site& site, bool with_pads);
    /// Columns behind x that the products read S from, where s does not lie there itself.
    TensorView pad_behind(const Site& site, const TensorView& x, const TensorView& s) const;
    /// The products of forward, S being there, that of the first linear behind x too, or where they
    /// are joined of all: `width` columns of each are multiplied by packed factors. Returns what
    /// they were made with (prepare).
    TensorView multiply(const Site& site, const TensorView& x, const std::array<TensorView, 3>& y,
                        const std::array<TensorView, 3>& s, std::int64_t width,
                        const TensorView& residual);
    /// y = (residual +) x mᵀ.
    void multiply_rows(const TensorView& x, const TensorView& m, const TensorView& y,
                       const TensorView& residual);
    void multiply_fp8(const Site& site, const TensorView& x, const std::array<TensorView, 3>& y,
                      const std::array<TensorView, 3>& s, std::int64_t width,
                      const TensorView& residual, Codes codes);
    /// dx = (or += with accumulate) dY W, and with `pads` columns of dS behind dy also dS A.
    /// Returns as multiply().
    TensorView multiply_back(const Site& site, const TensorView& dy, const TensorView& dx,
                             std::int64_t pads, bool accumulate);
    void multiply_back_fp8(const Site& site, const TensorView& dy, const TensorView& dx,
                           std::int64_t pads, bool accumulate, Codes codes);
    /// Some adapter of the rows has a residual start (TensorRole::start_a) and is on.
    bool has_starts(const Site& site) const;
    /// to -= scale B0 A0 from, or scale from B0 A0 backward, for linear i and rows with a residual
    /// start; `s`: scratch [T, R]. It does not drop its input, being a part of W.
    enum class Way : std::uint8_t { forward, backward };
    void subtract_start(const Site& site, int i, const TensorView& from, const TensorView& to,
                        const TensorView& s, Way way);
    std::int64_t first_column(const Site& site, int i) const;
    TensorView rows_of_linear(const Site& site, int i, const TensorView& m) const;
    DoraLinear::Site dora_site(const Site& site, int i, const TensorView& m);
    TensorView columns_of(const Site& site, int i, const TensorView& dy) const;
    TensorView ds_view(const Site& site, const TensorView& dy, int i) const;
    /// The product with W makes dS A too.
    bool in_one_gemm(const Site& site) const;
    /// No adapter of the rows needs more than LoraGatedBackward.
    bool has_gated(const Gated& of) const;
    LoraGatedBackward gather_gated(const Gated& of);
    /// Of linear i, whose target has been gathered.
    LoraBackward pass_of(const Site& site, const TensorView& dy, int i);

    ReplicaView view_;
    const AdapterBank& bank_;
    const Workspace& workspace_;
    Backend& backend_;
    DoraLinear dora_;
    VeraLinear vera_;
    FactorPads pads_;
    std::array<std::vector<LoraSlot>, 3> slots_;
    std::vector<LoraTarget> targets_;
    std::array<std::vector<LoraSlot>, 2> starts_;
    std::vector<LoraBackward> passes_;
};

}  // namespace loratrain
