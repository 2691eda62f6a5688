#include "model/linear_form.h"

namespace loratrain {

namespace {

/// What a residual start (TensorRole::start_a) takes from W, as the base that adapters share stays
/// as it is: Y -= scale X (B0 A0)ᵀ and dX -= scale dY B0 A0. That is a part of W, so it does not
/// drop its input.
class ResidualStart : public LinearForm {
  public:
    explicit ResidualStart(const FormParts& parts)
        : LinearForm(parts.bank, TensorRole::start_a),
          workspace_(parts.workspace),
          backend_(parts.backend) {}

    bool has_own_backward() const override { return false; }

    void forward(const LinearSite& at, const Forward& of) override {
        const Scratch s = workspace_.gradient(of.x.rows, at.rows().width);
        subtract(at, of.x, &LoraSlot::start_a, of.y, &LoraSlot::start_b, s);
    }

    void finish_dx(std::span<const LinearSite> linears, const TensorView& dy,
                   const TensorView& dx) override {
        for (const LinearSite& at : linears) {
            const Scratch s = workspace_.input(dy.rows, at.rows().width);
            subtract(at, at.columns_of(dy), &LoraSlot::start_b, dx, &LoraSlot::start_a, s);
        }
    }

  private:
    using Factor = const float* LoraSlot::*;

    /// to -= scale from narrowᵀ wide, by `s` [T, R].
    void subtract(const LinearSite& at, const TensorView& from, Factor narrow, const TensorView& to,
                  Factor wide, const TensorView& s) {
        const LoraRows rows = at.rows().lora_rows();
        const LoraTarget shrunk{with(at, narrow), s};
        backend_.lora_shrink({from, {&shrunk, 1}, rows});
        const LoraTarget expanded{with(at, wide), s};
        backend_.lora_expand_backward({to, {&expanded, 1}, rows, true});
    }

    /// The linear's slots with `factor` for A, of those adapters that have it.
    std::span<const LoraSlot> with(const LinearSite& at, Factor factor) {
        slots_.clear();
        for (const LoraSlot& slot : at.slots) {
            LoraSlot& start = slots_.emplace_back();
            start.rank = slot.start_a == nullptr ? 0 : slot.rank;
            start.scale = -slot.scale;
            start.column = slot.column;
            start.a = slot.*factor;
        }
        return slots_;
    }

    const Workspace& workspace_;
    Backend& backend_;
    std::vector<LoraSlot> slots_;
};

}  // namespace

std::unique_ptr<LinearForm> residual_start(const FormParts& parts) {
    return std::make_unique<ResidualStart>(parts);
}

}  // namespace loratrain
