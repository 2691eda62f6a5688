#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/group_site.h"
#include "model/linear_form.h"

namespace loratrain {

/// The factors of a microbatch's adapters behind a group's frozen matrix (design.md "One
/// augmented matrix"), or beside its codes: packed where they have changed since the last time.
class FactorPads {
  public:
    FactorPads(const ReplicaView& view, const AdapterBank& bank, LinearForms& forms,
               Backend& backend)
        : view_(view), bank_(bank), forms_(forms), backend_(backend) {}

    /// Where the factors of a group's linears go: b [N, blocks x width] (column_blocks), a
    /// [linears x width, K].
    struct Pads {
        TensorView b;
        TensorView a;
    };
    /// Packs those of the site now.
    void pack(const GroupSite& site, const Pads& pads);
    /// The same for pack_added() to do, all at once. Not where the factors of some adapter are
    /// there for one layer at a time (AdapterForm::projects): those are packed at each use.
    void add(const GroupSite& site, const Pads& pads);
    void pack_added();

  private:
    /// Sets wanted_.
    void want(const LayerRows& rows);
    bool wants_projected() const;
    bool are_there(const GroupSite& site) const;
    void append(const GroupSite& site, const Pads& pads);
    /// Slots of a linear of the group whose factors its pads are to hold.
    const std::vector<LoraSlot>& gather(const GroupSite& site, Linear linear);

    ReplicaView view_;
    const AdapterBank& bank_;
    LinearForms& forms_;
    Backend& backend_;
    const LayerRows* wanted_of_ = nullptr;  ///< of add(), until pack_added()
    std::vector<PackedFactors> wanted_;
    std::deque<std::vector<LoraSlot>> slots_;  ///< of packs_, the first slots_used_
    std::size_t slots_used_ = 0;
    std::vector<LoraPack> packs_;
};

}  // namespace loratrain
