#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/group_site.h"
#include "model/workspace.h"

namespace loratrain {

/// What adapters of a form compute on a linear group beyond its products (GroupProduct) and LoRA's
/// S, dS and gradients of A and B (LoraLinear), for those rows of a microbatch that are theirs. A
/// new form is such a class, a line in LinearForms' constructor and a row of the table in
/// config/adapter_form.h. Without overrides it computes what LoRA does. `linears` are all of the
/// group's, `at` is one of them.
class LinearForm {
  public:
    /// Adapters of the form have a tensor of `role`, and others have not.
    LinearForm(const AdapterBank& bank, TensorRole role) : bank_(bank), role_(role) {}
    virtual ~LinearForm() = default;
    LinearForm(const LinearForm&) = delete;
    LinearForm& operator=(const LinearForm&) = delete;

    /// Whether the group's calls concern it: some adapter of the rows has the form there. Asked
    /// only where some adapter of any form is on the group.
    virtual bool is_on(const GroupSite& site) const;
    /// The gradients of A and B need more than LoraGatedBackward makes.
    virtual bool has_own_backward() const { return true; }
    /// add_gradients() is wanted, for which the group's input is made again.
    virtual bool needs_input() const { return false; }

    /// Before an operator reads what AdapterBank::slot() points to.
    virtual void make_factors(AdapterId /*adapter*/, std::int32_t /*layer*/, Linear /*linear*/) {}

    /// Before the product of a linear is added to `residual`; returns what it is added to instead.
    virtual TensorView begin(const LinearSite& /*at*/, const TensorView& /*y*/,
                             const TensorView& residual) {
        return residual;
    }
    /// y: [T, N] with the product, and LoRA's S Bᵀ where that is in it; without the bias. S: at.s.
    /// `begun`: there was a residual.
    virtual void forward(const LinearSite& /*at*/, const TensorView& /*x*/, const TensorView& /*y*/,
                         bool /*begun*/) {}

    /// The dY that dS and the gradient of B come from; nothing where it is dy.
    virtual std::optional<Scratch> lora_gradient(const LinearSite& /*at*/,
                                                 const TensorView& /*dy*/) {
        return {};
    }
    /// Behind the gradients of B.
    virtual void take_gradients(const LinearSite& /*at*/) {}

    /// Of a linear in backward. y: what forward() left, without a bias, or nothing where that was
    /// not kept. drop(x) may be written to `dropped`, which may be x. `spare` [T, N] may be
    /// overwritten; if y lies in it, only in rows whose y is not needed.
    struct Backward {
        TensorView x;
        TensorView dy;
        TensorView dropped;
        TensorView y;
        TensorView spare;
    };
    /// add_gradients() reads at.w; x is lost then.
    virtual bool reads_weights(const LinearSite& /*at*/, const TensorView& /*y*/) const {
        return false;
    }
    /// Of its tensors other than A and B. S: at.s.
    virtual void add_gradients(const LinearSite& /*at*/, const Backward& /*of*/) {}

    /// Around the product dX [T, K] = dY W; dS: s of the linears. Whether dx has something already
    /// that the product is to be added to.
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

/// What forms are made of. All of it outlives them.
struct FormParts {
    const AdapterBank& bank;
    const Workspace& workspace;
    const StageLanes& lanes;
    Backend& backend;
};

// A form each, in the file of its name.
std::unique_ptr<LinearForm> separate_lora(const FormParts& parts);
std::unique_ptr<LinearForm> dora_linear(const FormParts& parts);
std::unique_ptr<LinearForm> vera_linear(const FormParts& parts);
std::unique_ptr<LinearForm> residual_start(const FormParts& parts);

/// One of each form, in the order of their calls.
class LinearForms {
  public:
    explicit LinearForms(const FormParts& parts);

    /// Those that the calls of a group concern, until the next call.
    std::span<LinearForm* const> on(const GroupSite& site);
    /// AdapterBank::slot, for operators to read.
    LoraSlot slot(AdapterId adapter, std::int32_t layer, Linear linear);

  private:
    const AdapterBank& bank_;
    std::vector<std::unique_ptr<LinearForm>> forms_;
    std::vector<LinearForm*> on_;
};

}  // namespace loratrain
