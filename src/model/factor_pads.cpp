#include "model/factor_pads.h"

#include <algorithm>

namespace loratrain {

void FactorPads::pack(const GroupSite& site, const Pads& pads) {
    want(site.rows);
    if (are_there(site)) return;
    append(site, pads);
    pack_added();
}

void FactorPads::add(const GroupSite& site, const Pads& pads) {
    if (wanted_of_ != &site.rows) want(*(wanted_of_ = &site.rows));
    if (!are_there(site) && !wants_projected()) append(site, pads);
}

void FactorPads::pack_added() {
    wanted_of_ = nullptr;
    if (packs_.empty()) return;
    backend_.lora_pack(packs_);
    packs_.clear();
    slots_used_ = 0;
}

void FactorPads::want(const LayerRows& rows) {
    wanted_.clear();
    for (const auto& [adapter, column] : rows.pads) {
        if (bank_.residence(adapter) != Residence::resident) continue;
        wanted_.push_back({adapter, column, bank_.version(adapter)});
    }
}

bool FactorPads::wants_projected() const {
    return std::any_of(wanted_.begin(), wanted_.end(),
                       [&](const PackedFactors& block) { return bank_.projects(block.adapter); });
}

bool FactorPads::are_there(const GroupSite& site) const {
    return site.weights.packed_width == site.rows.width && site.weights.packed == wanted_;
}

void FactorPads::append(const GroupSite& site, const Pads& pads) {
    GroupWeights& weights = site.weights;
    const std::int64_t width = site.rows.width;
    const bool joined = column_blocks(view_, site.group) > 1;
    std::int64_t row = 0;
    for (int i = 0; i < weights.shape.count; ++i) {
        const Linear linear = weights.shape.linears[static_cast<std::size_t>(i)];
        const LinearShape shape = linear_shape(view_.lane_model, linear);
        packs_.push_back({gather(site, linear), pads.b.row_range(row, shape.out),
                          pads.a.row_range(i * width, width), joined ? i * width : 0});
        row += shape.out;
    }
    weights.packed = wanted_;
    weights.packed_width = width;
}

const std::vector<LoraSlot>& FactorPads::gather(const GroupSite& site, Linear linear) {
    if (slots_used_ == slots_.size()) slots_.emplace_back();
    std::vector<LoraSlot>& slots = slots_[slots_used_++];
    slots.clear();
    for (const PackedFactors& block : wanted_) {
        slots.push_back(forms_.slot(block.adapter, site.layer, linear));
        slots.back().column = block.column;
    }
    return slots;
}

}  // namespace loratrain
