#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "adapter/adapter_bank.h"
#include "model/group_site.h"
#include "model/vera_linear.h"

namespace loratrain {

/// The factors of a microbatch's adapters behind a group's frozen matrix (design.md "One
/// augmented matrix"), or beside its codes: packed where they have changed since the last time.
class FactorPads {
  public:
    /// `vera` makes the B of adapters that are VeRA, one layer's at a time.
    FactorPads(const ReplicaView& view, const AdapterBank& bank, VeraLinear& vera,
               Backend& backend);

    /// Packs those of the site now. m: its augmented matrix (augmented_shape), of whose columns for
    /// LoRA it takes as many as the rows have; without data: beside the codes.
    void pack(const GroupSite& site, const TensorView& m);
    /// The same for pack_added() to do, all at once. Not where some adapter is VeRA: those are
    /// packed at each use.
    void add(const GroupSite& site, const TensorView& m);
    void pack_added();

  private:
    /// Where the factors of the group's linears go: b [N, blocks x width] (column_blocks), a
    /// [linears x width, K].
    struct Pads {
        TensorView b;
        TensorView a;
    };
    Pads pads_of(const GroupSite& site, const TensorView& m) const;
    /// Sets wanted_.
    void want(const LayerRows& rows);
    bool wants_vera() const;
    bool are_there(const GroupSite& site) const;
    void append(const GroupSite& site, const Pads& pads);
    /// Slots of a linear of the group whose factors its pads are to hold.
    const std::vector<LoraSlot>& gather(const GroupSite& site, Linear linear);

    ReplicaView view_;
    const AdapterBank& bank_;
    VeraLinear& vera_;
    Backend& backend_;
    const LayerRows* wanted_of_ = nullptr;  ///< of add(), until pack_added()
    std::vector<PackedFactors> wanted_;
    std::deque<std::vector<LoraSlot>> slots_;  ///< of packs_, the first slots_used_
    std::size_t slots_used_ = 0;
    std::vector<LoraPack> packs_;
};

}  // namespace loratrain
