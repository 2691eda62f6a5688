#include "model/layers/expert_lora.h"

#include <algorithm>

#include "plan/memory/frozen_layouts.h"

namespace loratrain {

namespace {

/// The output of linear `i` of `linears`; nothing of nothing.
ExpertRowsView output_of(const ExpertRowsView& all, ExpertLinears linears, std::size_t i) {
    if (all.data.data == nullptr) return {};
    const std::int64_t cols = all.data.cols / std::ssize(linears);
    return {all.data.col_range(static_cast<std::int64_t>(i) * cols, cols), all.gathered};
}

}  // namespace

void ExpertLoraLinear::make_ops(const Site& site, ExpertLinears linears, const ExpertRowsView& wide,
                                const TensorView& narrow, bool of_b) {
    ops_.clear();
    for (std::vector<LoraSlot>& slots : slots_) slots.clear();
    std::int32_t column = 0;
    for (const AdapterId adapter : site.rows.adapters) {
        for (std::size_t i = 0; i < linears.size(); ++i) {
            LoraSlot slot = bank_.slot(adapter, site.layer, linears[i]);
            slot.column = column;
            column += slot.rank;
            slots_.at(i).push_back(slot);
        }
    }
    const TensorView used = used_columns(site, linears, narrow);
    for (std::size_t i = 0; i < linears.size(); ++i) {
        const ExpertRowsView of = of_b ? output_of(wide, linears, i) : wide;
        ops_.push_back(
            {of.data, used, slots_.at(i), site.rows.lora_rows(), site.routes, of_b, of.gathered});
    }
}

TensorView ExpertLoraLinear::used_columns(const Site& site, ExpertLinears linears,
                                          const TensorView& s) const {
    std::int32_t columns = 0;
    for (const AdapterId adapter : site.rows.adapters) {
        for (const Linear linear : linears) {
            columns += bank_.slot(adapter, site.layer, linear).rank;
        }
    }
    return s.col_range(0, std::min(s.cols, std::int64_t{padded_columns(columns)}));
}

bool ExpertLoraLinear::is_on(const Site& site, ExpertLinears linears) const {
    const auto& adapters = site.rows.adapters;
    return !site.rows.base_alone &&
           std::any_of(adapters.begin(), adapters.end(), [&](AdapterId adapter) {
               return std::any_of(linears.begin(), linears.end(), [&](Linear linear) {
                   return bank_.slot(adapter, site.layer, linear).rank > 0;
               });
           });
}

ExpertLoras ExpertLoraLinear::forward(const Site& site, ExpertLinears linears,
                                      const ExpertRowsView& x, const TensorView& s,
                                      const TensorView& y) {
    make_ops(site, linears, x, s, false);
    backend_.narrow_experts(ops_);
    for (std::size_t i = 0; i < ops_.size(); ++i) {
        ops_[i].wide = output_of({y}, linears, i).data;
        ops_[i].of_b = true;
        ops_[i].gathered = false;
    }
    return ops_;
}

ExpertLoras ExpertLoraLinear::backward(const Site& site, ExpertLinears linears,
                                       const ExpertRowsView& dy, const TensorView& ds,
                                       const TensorView& dx) {
    make_ops(site, linears, dy, ds, true);
    backend_.narrow_experts(ops_);
    for (ExpertLora& op : ops_) {
        op.wide = dx;
        op.of_b = false;
        op.gathered = false;
    }
    return ops_;
}

void ExpertLoraLinear::add_gradients(const Site& site, ExpertLinears linears,
                                     const ExpertRowsView& x, const TensorView& ds,
                                     const ExpertRowsView& dy, const TensorView& s) {
    make_ops(site, linears, dy, s, true);
    backend_.add_expert_grads(ops_);
    make_ops(site, linears, x, ds, false);
    backend_.add_expert_grads(ops_);
}

}  // namespace loratrain
