#include "model/lora_linear.h"

#include <algorithm>

namespace loratrain {

LoraLinear::LoraLinear(const ReplicaView& view, const AdapterBank& bank, const Workspace& workspace,
                       Backend& backend, const StageLanes& lanes)
    : view_(view),
      bank_(bank),
      backend_(backend),
      forms_({bank, workspace, lanes, backend}),
      pads_(view, bank, forms_, backend),
      product_((view.plan.fp8_linears ? fp8_product
                                      : augmented_product)({view, workspace, pads_, backend})) {}

bool LoraLinear::has_lora(const Site& site) const {
    const auto& adapters = site.rows.adapters;
    return !site.rows.base_alone &&
           std::any_of(adapters.begin(), adapters.end(), [&](AdapterId adapter) {
               return bank_.targets_group(adapter, site.layer, site.group);
           });
}

std::span<LinearForm* const> LoraLinear::forms_on(const Site& site) {
    if (!has_lora(site)) return {};
    return forms_.on(site);
}

bool LoraLinear::needs_input(const Site& site) {
    const auto forms = forms_on(site);
    return std::any_of(forms.begin(), forms.end(),
                       [](const LinearForm* form) { return form->needs_input(); });
}

void LoraLinear::gather_slots(const Site& site, LinearSite& at) {
    at.slots.clear();
    for (std::size_t s = 0; s < site.rows.adapters.size(); ++s) {
        LoraSlot& slot =
            at.slots.emplace_back(forms_.slot(site.rows.adapters[s], site.layer, at.linear));
        slot.column = site.rows.columns[s];
        if (site.rows.evaluation) slot.dropout = 0;
    }
}

std::span<LinearSite> LoraLinear::gather(const Site& site, const PerLinear& s) {
    targets_.clear();
    std::int64_t first = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(site.count()); ++i) {
        LinearSite& at = linears_[i];
        at.group = &site;
        at.linear = site.weights.shape.linears[i];
        at.shape = linear_shape(view_.lane_model, at.linear);
        at.first = first;
        at.s = s[i];
        at.w = {};
        gather_slots(site, at);
        targets_.push_back({at.slots, at.s});
        first += at.shape.out;
    }
    return {linears_.data(), targets_.size()};
}

void LoraLinear::give_weights(std::span<LinearSite> linears, const TensorView& m) {
    if (m.data == nullptr) return;
    for (LinearSite& at : linears) {
        at.w = m.row_range(at.first, at.shape.out).col_range(0, at.shape.in);
    }
}

void LoraLinear::pack_all(std::span<const Site> sites) {
    for (const Site& site : sites) {
        if (!site.rows.augmented || !has_lora(site)) continue;
        if (const auto pads = product_->kept_pads(site)) pads_.add(site, *pads);
    }
    pads_.pack_added();
}

TensorView LoraLinear::pad_behind(const Site& site, const TensorView& x,
                                  const TensorView& s) const {
    if (!site.rows.augmented || site.rows.width == 0) return {};
    return product_->pad_behind(site, x, s);
}

void LoraLinear::forward(const Site& site, const GroupInput& of, const PerLinear& y,
                         const TensorView& residual, const TensorView& kept) {
    const LayerRows& rows = site.rows;
    const TensorView& x = of.x.view;
    const bool lora = has_lora(site);
    std::span<LinearSite> linears;
    std::span<LinearForm* const> forms;
    if (lora) {
        linears = gather(site, of.s);
        forms = forms_.on(site);
        if (!of.has_sums()) {
            backend_.lora_shrink({x, targets_, rows.lora_rows(), pad_behind(site, x, of.s[0])});
        }
    }
    TensorView added = residual;
    for (LinearForm* form : forms) {
        if (residual.data != nullptr) added = form->begin(linears[0], y[0], added);
    }
    const std::int64_t width = lora && rows.augmented ? rows.width : 0;
    const Scratch m = product_->forward(site, of.x, y, of.s, width, added);
    give_weights(linears, m);
    for (std::size_t i = 0; i < static_cast<std::size_t>(site.count()); ++i) {
        for (LinearForm* form : forms) form->forward(linears[i], {x, y[i], residual, kept});
        const void* bias = site.weights.bias[i].data();
        if (bias != nullptr) backend_.add_bias({y[i], bias});
    }
}

bool LoraLinear::shrink_gated(const Site& down, const SwiGlu& product, GroupInput& input) {
    if (!has_lora(down)) return false;
    gather(down, input.s);
    const LoraGatedForward op{product, targets_[0], down.rows.lora_rows(),
                              pad_behind(down, product.h, input.s[0])};
    input.has_sums_ = backend_.takes_at_once(op);
    if (input.has_sums()) backend_.lora_gated_forward(op);
    return input.has_sums();
}

void LoraLinear::shrink(const Site& site, const GroupInput& of) {
    if (of.has_sums() || !has_lora(site)) return;
    gather(site, of.s);
    backend_.lora_shrink({of.x.view, targets_, site.rows.lora_rows()});
}

PerLinear LoraLinear::ds_of(const Site& site, const TensorView& dy) {
    PerLinear ds;
    const std::int64_t width = site.rows.width;
    for (int i = 0; i < site.count(); ++i) {
        ds[static_cast<std::size_t>(i)] = dy.col_range(dy.cols + i * width, width);
    }
    return ds;
}

LoraBackward LoraLinear::pass_of(const Site& site, const TensorView& dy, std::size_t i) {
    LoraTarget& target = targets_[i];
    target.s.cols = site.rows.width;
    return {linears_[i].columns_of(dy), target, ds_of(site, dy)[i], site.rows.lora_rows()};
}

void LoraLinear::backward_b(const Site& site, const TensorView& dy, const PerLinear& s) {
    if (!has_lora(site)) return;
    const std::span<LinearSite> linears = gather(site, s);
    const std::span<LinearForm* const> forms = forms_.on(site);
    passes_.clear();
    for (std::size_t i = 0; i < linears.size(); ++i) {
        LoraBackward op = pass_of(site, dy, i);
        std::optional<Scratch> own;
        for (LinearForm* form : forms) {
            own = form->lora_gradient(linears[i], op.dy);
            if (own) break;
        }
        if (own) {
            op.dy = *own;
            backend_.lora_backward(op);
        } else {
            passes_.push_back(op);
        }
    }
    backend_.lora_backward_group(passes_);
    for (LinearForm* form : forms) {
        for (const LinearSite& at : linears) form->take_gradients(at);
    }
}

bool LoraLinear::leave_out_frozen() {
    bool any = false;
    for (std::size_t i = 0; i < targets_.size(); ++i) {
        for (LoraSlot& slot : linears_[i].slots) {
            if (slot.grad_a == nullptr) slot.rank = 0;
            any = any || slot.rank > 0;
        }
    }
    return any;
}

void LoraLinear::backward_a(const Site& site, const TensorView& x, const TensorView& dy,
                            const void* norm_weight, float weight_offset) {
    if (!has_lora(site)) return;
    gather(site, ds_of(site, dy));
    if (!leave_out_frozen()) return;
    backend_.lora_grad_a({x, targets_, site.rows.lora_rows(), norm_weight, weight_offset});
}

bool LoraLinear::add_form_gradients(const Site& site, int i, const LinearForm::Backward& of,
                                    const TensorView& s) {
    if (!needs_input(site)) return false;
    PerLinear columns;
    columns[static_cast<std::size_t>(i)] = s;
    const std::span<LinearSite> linears = gather(site, columns);
    LinearSite& at = linears[static_cast<std::size_t>(i)];
    LinearForm::Backward own = of;
    own.dy = at.columns_of(of.dy);
    bool lost = false;
    for (LinearForm* form : forms_.on(site)) {
        Scratch m;
        if (form->reads_weights(at, of.y)) {
            m = product_->read_matrix(site);
            give_weights(linears, m);
            lost = true;
        }
        form->add_gradients(at, own);
    }
    return lost;
}

bool LoraLinear::in_one_gemm(const Site& site) const {
    return has_lora(site) && site.rows.augmented && !site.rows.has_dropout;
}

void LoraLinear::multiply_back(const Site& site, const Operand& dy, const TensorView& dx,
                               bool with_factors) {
    const auto forms = forms_on(site);
    std::span<LinearSite> linears;
    if (!forms.empty()) linears = gather(site, ds_of(site, dy.view));
    const bool factors_too = with_factors && in_one_gemm(site);
    bool begun = false;
    for (LinearForm* form : forms) {
        if (with_factors && form->begin_dx(linears, dy.view, dx)) begun = true;
    }
    const std::int64_t pads = factors_too ? site.count() * site.rows.width : 0;
    const Scratch m = product_->backward(site, dy, dx, pads, begun);
    give_weights(linears, m);
    for (LinearForm* form : forms) form->finish_dx(linears, dy.view, dx);
}

bool LoraLinear::has_gated(const Gated& of) {
    if (!of.product || of.gate_up.count() != 2) return false;
    for (const Site* site : {&of.down, &of.gate_up}) {
        const auto forms = forms_on(*site);
        if (!has_lora(*site) || std::any_of(forms.begin(), forms.end(), [](const LinearForm* form) {
                return form->has_own_backward();
            })) {
            return false;
        }
    }
    return true;
}

LoraGatedBackward LoraLinear::gather_gated(const Gated& of) {
    down_.linear = of.down.weights.shape.linears[0];
    gather_slots(of.down, down_);
    gather(of.gate_up, of.s);
    TensorView d_gate_up = of.product->dgate;
    d_gate_up.cols += of.product->dup.cols;
    return {*of.product,
            {down_.slots, ds_of(of.down, of.d_down)[0]},
            pass_of(of.gate_up, d_gate_up, 0),
            pass_of(of.gate_up, d_gate_up, 1)};
}

bool LoraLinear::backward_x_of_down(const Gated& of, const TensorView& dx) {
    const bool at_once = has_gated(of) && backend_.takes_at_once(gather_gated(of));
    multiply_back(of.down, {of.d_down}, dx, !at_once || in_one_gemm(of.down));
    return at_once;
}

void LoraLinear::backward_gated(const Gated& of) {
    LoraGatedBackward op = gather_gated(of);
    op.adds_down = !in_one_gemm(of.down);
    backend_.lora_gated_backward(op);
}

}  // namespace loratrain
