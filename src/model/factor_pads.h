#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/group_site.h"
#include "model/linear_form.h"

namespace loratrain {

/// Packs the LoRA factors of a microbatch's adapters behind a group's frozen matrix (design.md "One
/// augmented matrix"), or beside the matrix's codes. Packs only factors that have changed since the
/// last packing.
class FactorPads {
  public:
    FactorPads(const ReplicaView& view, const AdapterBank& bank, LinearForms& forms,
               Backend& backend)
        : view_(view), bank_(bank), forms_(forms), backend_(backend) {}

    /// Destination of a group's factors: b [N, blocks x width] (column_blocks), a [linears x width,
    /// K].
    struct Pads {
        TensorView b;
        TensorView a;
    };
    /// Packs the site's factors now.
    void pack(const GroupSite& site, const Pads& pads);
    /// Adds the site's factors to those that pack_added() packs in one operation. Does nothing if
    /// an adapter's factors exist for only one layer at a time (AdapterForm::projects): such
    /// factors are packed at each use.
    void add(const GroupSite& site, const Pads& pads);
    void pack_added();

  private:
    /// Sets wanted_.
    void want(const LayerRows& rows);
    bool wants_projected() const;
    bool are_there(const GroupSite& site) const;
    void append(const GroupSite& site, const Pads& pads);
    /// Slots of one linear of the group, for the adapters whose factors its pads will hold.
    const std::vector<LoraSlot>& gather(const GroupSite& site, Linear linear);

    ReplicaView view_;
    const AdapterBank& bank_;
    LinearForms& forms_;
    Backend& backend_;
    /// Rows that wanted_ is for, from add() to pack_added().
    const LayerRows* wanted_of_ = nullptr;
    std::vector<PackedFactors> wanted_;
    /// Slots of packs_, in the first slots_used_ elements.
    std::deque<std::vector<LoraSlot>> slots_;
    std::size_t slots_used_ = 0;
    std::vector<LoraPack> packs_;
};

}  // namespace loratrain
