#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/factor_pads.h"
#include "model/group_product.h"
#include "model/group_site.h"
#include "model/linear_form.h"
#include "model/workspace.h"

namespace loratrain {

/// A group of linears with LoRA, forward and backward.

/// A group's input x: [T, K], with column_blocks x saved_columns writable columns after it in each
/// row, and where its S goes: s[i]: [T, R], kept for backward. s[0] may be x's own pad when the
/// group has one linear.
class GroupInput {
  public:
    GroupInput(Operand operand, const PerLinear& columns) : x(operand), s(columns) {}

    Operand x;
    PerLinear s;
    /// s and x's pad hold S already.
    bool has_sums() const { return has_sums_; }

  private:
    friend class LoraLinear;
    bool has_sums_ = false;
};

/// Forward and backward of one linear group with the adapters of a microbatch (BatchLoRA, mLoRA
/// section 3):
///
///   forward:   S_i = scale drop_i(X) A_iᵀ, of the rows of each adapter alone,
///              Y_i = X W_iᵀ + S_i B_iᵀ + b_i
///   backward:  dS_i = scale dY_i B_i,  dB_i += dY_iᵀ S_i,  dA_i += dS_iᵀ drop_i(X),
///              dX = sum_i dY_i W_i + drop_i'(dS_i A_i)
///
/// GroupProduct multiplies by W, and by LoRA's factors too where it can. LinearForms compute the
/// rest: LoRA on its own, and what other methods add (DoRA, VeRA, ...).
class LoraLinear {
  public:
    LoraLinear(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
               Backend& backend, const StageLanes& lanes);
    LoraLinear(const LoraLinear&) = delete;
    LoraLinear& operator=(const LoraLinear&) = delete;

    using Site = GroupSite;

    /// Packs the factors that have changed into the pads of all these groups at once, where pads
    /// stay between uses and so do the factors; the others' are packed at each use.
    void pack_all(std::span<const Site> sites);

    /// For the op that writes a group's input, or its output's gradient, as it makes an Operand.
    RowCodes coding_of_input(std::int64_t tokens, std::int64_t columns) const {
        return product_->coding_of_input(tokens, columns);
    }
    RowCodes coding_of_gradient(const Site& site, std::int64_t tokens) const {
        return product_->coding_of_gradient(site, tokens);
    }

    /// y[i]: [T, N_i] (`residual`, of groups of one linear: Y = residual + ...; `kept`:
    /// LinearForm::Forward).
    void forward(const Site& site, const GroupInput& of, const PerLinear& y,
                 const TensorView& residual, const TensorView& kept = {});
    /// Computes h of `product` and S of down, whose input is h, in one pass (LoraGatedForward).
    /// Returns false and does nothing where the backend gains nothing by that.
    bool shrink_gated(const Site& down, const SwiGlu& product, GroupInput& input);
    /// The S of forward alone, for a backward whose activations are recomputed.
    void shrink(const Site& site, const GroupInput& of);

    /// Fills dS into the columns behind dy and adds to the gradients of B. Rows of DoRA become g ∘
    /// dY where dy is in scratch (LinearForm::lora_gradient). dy: [T, N] (linears of the group side
    /// by side) with count * saved_columns writable columns after it.
    void backward_b(const Site& site, const TensorView& dy, const PerLinear& s);
    /// Gradients of A from the group's input x and the dS of backward_b. With `norm_weight` x is
    /// the input of that RmsNorm instead, and rows of dS are already multiplied by its 1 / rms.
    void backward_a(const Site& site, const TensorView& x, const TensorView& dy,
                    const void* norm_weight = nullptr, float weight_offset = 0.0F);
    /// The dS of all linears of the group, behind dy.
    static TensorView ds_of_group(const Site& site, const TensorView& dy) {
        return dy.col_range(dy.cols, site.count() * site.rows.width);
    }
    /// Adds the gradients of tensors other than A and B on linear i, if needs_input(). Call it
    /// before backward_x, or after it if the group has one linear. y: the linear's output, if kept.
    /// Returns true if x is overwritten.
    bool add_form_gradients(const Site& site, int i, const LinearForm::Backward& of,
                            const TensorView& s);
    /// dx = gradient of the group's input, from dy and dS of backward_b. dx: [T, K]. With DoRA dy
    /// is lost in groups of several linears.
    void backward_x(const Site& site, const Operand& dy, const TensorView& dx) {
        multiply_back(site, dy, dx, true);
    }
    /// What lies around an MLP's activation; s: of gate and up; product: where there is a gate.
    struct Gated {
        const Site& down;
        TensorView d_down;
        const Site& gate_up;
        PerLinear s;
        std::optional<SwiGluBackward> product = {};
    };
    /// backward_x of down to dx. Whether backward_gated must follow: not where the backend gains
    /// nothing by that, where there is no gate, where gate and up are not linears of their own, or
    /// adapters of the rows need more. Of the scratch of `product` only dh is in use meanwhile.
    bool backward_x_of_down(const Gated& of, const TensorView& dx);
    /// swiglu_backward, backward_a of down and backward_b of gate and up in one pass
    /// (LoraGatedBackward), with what backward_x_of_down has left to it.
    void backward_gated(const Gated& of);

    /// Some adapter of the rows is on the group.
    bool has_lora(const Site& site) const;
    /// Some adapter of the rows needs add_form_gradients().
    bool needs_input(const Site& site);
    /// Linear i has a bias, which its output holds.
    static bool has_bias_of(const Site& site, int i) {
        return site.weights.bias[static_cast<std::size_t>(i)].data() != nullptr;
    }

  private:
    std::span<LinearForm* const> forms_on(const Site& site);
    /// The linears of the group with their slots and S or dS, until the next call; also targets_.
    std::span<LinearSite> gather(const Site& site, const PerLinear& s);
    void gather_slots(const Site& site, LinearSite& at);
    /// For shrinking x.
    TensorView pad_behind(const Site& site, const TensorView& x, const TensorView& s) const;
    static PerLinear ds_of(const Site& site, const TensorView& dy);
    /// W of the linears in the group's matrix, or nothing.
    static void give_weights(std::span<LinearSite> linears, const TensorView& m);
    /// Of the gathered slots those whose A has no gradient. Whether others remain.
    bool leave_out_frozen();
    /// backward_x, `with_factors`: with dS A.
    void multiply_back(const Site& site, const Operand& dy, const TensorView& dx,
                       bool with_factors);
    /// The product with W makes dS A too.
    bool in_one_gemm(const Site& site) const;
    /// No adapter of the rows needs more than LoraGatedBackward.
    bool has_gated(const Gated& of);
    LoraGatedBackward gather_gated(const Gated& of);
    /// Of gathered linear i.
    LoraBackward pass_of(const Site& site, const TensorView& dy, std::size_t i);

    ReplicaView view_;
    const AdapterBank& bank_;
    Backend& backend_;
    LinearForms forms_;
    FactorPads pads_;
    std::unique_ptr<GroupProduct> product_;
    std::array<LinearSite, most_group_linears> linears_;
    LinearSite down_;  ///< of gather_gated()
    std::vector<LoraTarget> targets_;
    std::vector<LoraBackward> passes_;
};

}  // namespace loratrain
