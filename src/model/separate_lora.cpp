#include <vector>

#include "model/linear_form.h"

namespace loratrain {

namespace {

/// LoRA whose products are operators of its own, Y += S Bᵀ where ranks are too many for the pads of
/// the augmented matrix and dX = drop'(dS A) also where adapters drop their input, segment by
/// segment (design.md "One augmented matrix").
class SeparateLora : public LinearForm {
  public:
    explicit SeparateLora(const FormParts& parts)
        : LinearForm(parts.bank, TensorRole::a), backend_(parts.backend) {}

    bool is_on(const GroupSite& site) const override {
        return !site.rows.augmented || site.rows.has_dropout;
    }
    bool has_own_backward() const override { return false; }

    void forward(const LinearSite& at, const Forward& of) override {
        if (!at.rows().augmented) {
            backend_.lora_expand({{at.slots, at.s}, of.y, at.rows().lora_rows()});
        }
    }

    bool begin_dx(std::span<const LinearSite> linears, const TensorView& /*dy*/,
                  const TensorView& dx) override {
        targets_.clear();
        for (const LinearSite& at : linears) targets_.push_back({at.slots, at.s});
        backend_.lora_expand_backward({dx, targets_, linears[0].rows().lora_rows(), false});
        return true;
    }

  private:
    Backend& backend_;
    std::vector<LoraTarget> targets_;
};

}  // namespace

std::unique_ptr<LinearForm> separate_lora(const FormParts& parts) {
    return std::make_unique<SeparateLora>(parts);
}

}  // namespace loratrain
