#pragma once

#include <cstdint>
#include <vector>

#include "plan/pack/block_items.h"
#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// The ways to pack a block; pack_balanced.h chooses among them for policy `balanced`.

/// Batches that are packed together. Portions are in training order: group by group in every round.
struct Portion {
    std::vector<std::int32_t> batches;
    std::vector<std::int32_t> items;
    std::vector<std::int32_t> costly_first{};  ///< the same by falling cost
};

/// The portions of `groups` groups of adapters (1 <= groups <= adapters). Groups are made by
/// head-tail pairing (LoRAFusion section 5.2): adapters are sorted by their mean sample length in
/// the block and dealt to and fro, so that long samples meet short ones. Groups take turns in the
/// order of their first adapter, so that an adapter's next batch is as far away as possible.
std::vector<Portion> portions(const BlockItems& block, std::int32_t groups);

/// Every portion in as few microbatches as possible, by pack_greedy or pack_fewest, on
/// rules.threads threads.
std::vector<Bins> pack_filled(const BlockItems& block, const std::vector<Portion>& portions,
                              const PackRules& rules, bool milp);

/// Order of a portion's microbatches by cost. peak: the costliest in the middle, so that the
/// pipeline fills and drains quickly if an adapter trains alone.
enum class BinOrder : std::uint8_t { falling, rising, peak };

/// Of each portion, the number of microbatches of equal cost that brings it nearest to `target`
/// nanoseconds.
using PortionCounts = std::vector<std::int64_t>;
PortionCounts evened_counts(const BlockItems& block, const std::vector<Portion>& portions,
                            std::int64_t target);
/// Every portion in so many microbatches of equal cost, more if capacity asks for it, by falling
/// cost.
std::vector<Bins> pack_evened(const BlockItems& block, const std::vector<Portion>& portions,
                              const PortionCounts& counts);

/// All portions as one stream, cut into microbatches of about `target` nanoseconds. The rest of a
/// portion shares a microbatch with samples of later portions, chosen so that the sum is nearest to
/// the target. An adapter's next batch never joins a microbatch that has samples of the adapter.
Bins pack_stream(const BlockItems& block, const std::vector<Portion>& portions,
                 std::int64_t target);

/// The microbatches of all portions one after another. `packed` has each portion by falling cost;
/// the result has it in `order`.
Bins concatenate(std::vector<Bins> packed, BinOrder order = BinOrder::falling);

/// LoRAFusion's merge pass over neighbouring portions: the last (emptiest) microbatch of the later
/// portion moves into the last one of the earlier portion, whole if capacity allows it, else its
/// shortest samples first. An adapter's next batch never joins a microbatch that has samples of the
/// adapter. A merge is kept if the block's simulated time does not grow; in very long blocks
/// several merges are judged together.
struct Merged {
    Bins bins;
    std::int32_t merges = 0;
};
Merged merge_portions(const PackRules& rules, const BlockItems& block,
                      const std::vector<Bins>& packed);

/// One way to pack a block.
struct PackVariant {
    Filling filling = Filling::streamed;
    std::int32_t groups = 1;
    std::int64_t target = 0;             ///< nanoseconds of a microbatch; evened, streamed
    BinOrder order = BinOrder::falling;  ///< evened only
};

Bins pack_variant(const PackRules& rules, const BlockItems& block, const PackVariant& variant);
/// `parts`: the portions of that many groups.
Bins pack_variant(const PackRules& rules, const BlockItems& block,
                  const std::vector<Portion>& parts, const PackVariant& variant);

/// Packings with one adapter per microbatch, by the rules of pack_microbatches.h.

Bins pack_sequential(const BlockItems& block);
Bins pack_one_f_one_b(const BlockItems& block, std::int32_t stages);
Bins pack_mlora(const BlockItems& block, std::int32_t stages);

}  // namespace loratrain
