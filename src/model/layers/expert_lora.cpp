#include "model/layers/expert_lora.h"

#include <algorithm>

namespace loratrain {

ExpertLora ExpertLoraLinear::op_of(const Site& site, Linear linear, const TensorView& wide,
                                   const TensorView& narrow, bool of_b) {
    slots_.clear();
    for (std::size_t s = 0; s < site.rows.adapters.size(); ++s) {
        slots_.push_back(bank_.slot(site.rows.adapters[s], site.layer, linear));
        slots_.back().column = site.rows.columns[s];
    }
    return {wide, narrow, slots_, site.rows.lora_rows(), site.routes, of_b};
}

bool ExpertLoraLinear::is_on(const Site& site, Linear linear) {
    const auto& adapters = site.rows.adapters;
    return !site.rows.base_alone &&
           std::any_of(adapters.begin(), adapters.end(), [&](AdapterId adapter) {
               return bank_.slot(adapter, site.layer, linear).rank > 0;
           });
}

void ExpertLoraLinear::shrink(const Site& site, Linear linear, const TensorView& x,
                              const TensorView& s) {
    backend_.narrow_experts(op_of(site, linear, x, s, false));
}

void ExpertLoraLinear::expand(const Site& site, Linear linear, const TensorView& s,
                              const TensorView& y) {
    backend_.widen_experts(op_of(site, linear, y, s, true));
}

void ExpertLoraLinear::shrink_back(const Site& site, Linear linear, const TensorView& dy,
                                   const TensorView& ds) {
    backend_.narrow_experts(op_of(site, linear, dy, ds, true));
}

void ExpertLoraLinear::expand_back(const Site& site, Linear linear, const TensorView& ds,
                                   const TensorView& dx) {
    backend_.widen_experts(op_of(site, linear, dx, ds, false));
}

void ExpertLoraLinear::add_grad_a(const Site& site, Linear linear, const TensorView& x,
                                  const TensorView& ds) {
    backend_.add_expert_grads(op_of(site, linear, x, ds, false));
}

void ExpertLoraLinear::add_grad_b(const Site& site, Linear linear, const TensorView& dy,
                                  const TensorView& s) {
    backend_.add_expert_grads(op_of(site, linear, dy, s, true));
}

}  // namespace loratrain
