#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/group_site.h"
#include "model/workspace.h"

namespace loratrain {

/// What adapters of one form compute on a linear group beyond its products (GroupProduct) and
/// beyond LoRA's S, dS and gradients of A and B (LoraLinear). It applies to the rows of a
/// microbatch that belong to such adapters. Without overrides a form computes plain LoRA. `linears`
/// are all linears of the group, `at` is one of them.
///
/// A new form is a class of this kind, a line in LinearForms' constructor, and a row of the table
/// in config/adapter_form.h.
class LinearForm {
  public:
    /// `role` is a tensor that exactly the adapters of this form have.
    LinearForm(const AdapterBank& bank, TensorRole role) : bank_(bank), role_(role) {}
    virtual ~LinearForm() = default;
    LinearForm(const LinearForm&) = delete;
    LinearForm& operator=(const LinearForm&) = delete;

    /// Whether an adapter of the rows has this form on the group. Only asked if an adapter of any
    /// form targets the group.
    virtual bool is_on(const GroupSite& site) const;
    /// Whether the gradients of A and B need more than LoraGatedBackward makes.
    virtual bool has_own_backward() const { return true; }
    /// Whether add_gradients() has to be called; the group's input is recomputed for it.
    virtual bool needs_input() const { return false; }

    /// Called before an operator reads the factors that AdapterBank::slot() points to.
    virtual void make_factors(AdapterId /*adapter*/, std::int32_t /*layer*/, Linear /*linear*/) {}

    /// Called before the product of a linear is added to `residual`. Returns the matrix that the
    /// product is added to instead.
    virtual TensorView begin(const LinearSite& /*at*/, const TensorView& /*y*/,
                             const TensorView& residual) {
        return residual;
    }
    /// Operands of a linear in forward.
    /// - y [T, N]: the product, and LoRA's S Bᵀ if the product includes it, without the bias.
    /// - residual [T, N]: what the output is added to; without data if nothing.
    /// - kept [T, N]: where the output without the residual is put, for Backward::y; without data
    ///   if nobody reads it.
    struct Forward {
        TensorView x;
        TensorView y;
        TensorView residual;
        TensorView kept;
    };
    /// Called after the product. S is at.s.
    virtual void forward(const LinearSite& /*at*/, const Forward& /*of*/) {}

    /// The gradient dY from which dS and the gradient of B are computed; none if it is `dy`, whose
    /// rows of the form may be overwritten.
    virtual std::optional<Scratch> lora_gradient(const LinearSite& /*at*/,
                                                 const TensorView& /*dy*/) {
        return {};
    }
    /// Called after the gradients of B are made.
    virtual void take_gradients(const LinearSite& /*at*/) {}

    /// Operands of a linear in backward.
    /// - y: the result of forward() without a bias; without data if it was not kept.
    /// - dropped: where drop(x) may be written; may be x.
    /// - spare [T, N]: may be overwritten. If y lies in it, only the rows whose y is not needed may
    ///   be overwritten.
    struct Backward {
        TensorView x;
        TensorView dy;
        TensorView dropped;
        TensorView y;
        TensorView spare;
    };
    /// Whether add_gradients() reads at.w. If so, x is lost afterwards.
    virtual bool reads_weights(const LinearSite& /*at*/, const TensorView& /*y*/) const {
        return false;
    }
    /// Adds to the gradients of the form's tensors other than A and B. S is at.s.
    virtual void add_gradients(const LinearSite& /*at*/, const Backward& /*of*/) {}

    /// begin_dx() is called before the product dX [T, K] = dY W, finish_dx() after it; dS is `s` of
    /// the linears. Returns whether dx already holds values to which the product has to be added.
    virtual bool begin_dx(std::span<const LinearSite> /*linears*/, const TensorView& /*dy*/,
                          const TensorView& /*dx*/) {
        return false;
    }
    virtual void finish_dx(std::span<const LinearSite> /*linears*/, const TensorView& /*dy*/,
                           const TensorView& /*dx*/) {}

  protected:
    const AdapterBank& bank_;

  private:
    TensorRole role_;
};

/// References that a form keeps; they outlive it.
struct FormParts {
    const AdapterBank& bank;
    const Workspace& workspace;
    const StageLanes& lanes;
    Backend& backend;
};

// One form each, in the file of the same name.
std::unique_ptr<LinearForm> separate_lora(const FormParts& parts);
std::unique_ptr<LinearForm> dora_linear(const FormParts& parts);
std::unique_ptr<LinearForm> vera_linear(const FormParts& parts);
std::unique_ptr<LinearForm> residual_start(const FormParts& parts);

/// One object of each form, in the order in which they are called.
class LinearForms {
  public:
    explicit LinearForms(const FormParts& parts);

    /// Forms that apply to the group (LinearForm::is_on). Valid until the next call.
    std::span<LinearForm* const> on(const GroupSite& site);
    /// AdapterBank::slot(), with the factors made (LinearForm::make_factors) for operators to read.
    LoraSlot slot(AdapterId adapter, std::int32_t layer, Linear linear);

  private:
    const AdapterBank& bank_;
    std::vector<std::unique_ptr<LinearForm>> forms_;
    std::vector<LinearForm*> on_;
};

}  // namespace loratrain
