#include "model/layers/expert_lora.h"

#include <algorithm>

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
    const auto adapters = site.rows.adapters.size();
    std::vector<std::int32_t> columns(site.rows.columns.begin(), site.rows.columns.end());
    for (std::int32_t& column : columns) column *= static_cast<std::int32_t>(linears.size());
    for (std::size_t i = 0; i < linears.size(); ++i) {
        std::vector<LoraSlot>& slots = slots_.at(i);
        slots.clear();
        for (std::size_t s = 0; s < adapters; ++s) {
            slots.push_back(bank_.slot(site.rows.adapters[s], site.layer, linears[i]));
            slots.back().column = columns[s];
            columns[s] += slots.back().rank;
        }
        const ExpertRowsView of = of_b ? output_of(wide, linears, i) : wide;
        ops_.push_back(
            {of.data, narrow, slots, site.rows.lora_rows(), site.routes, of_b, of.gathered});
    }
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
