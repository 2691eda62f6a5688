#pragma once

#include <cstdint>
#include <vector>

#include "plan/pack/block_items.h"
#include "plan/pack/pack_microbatches.h"

namespace loratrain {

/// The ways in which policy `balanced` can pack a block; pack_balanced.h chooses among them.

/// Batches packed together, in training order: group by group in every round.
struct Portion {
    std::vector<std::int32_t> batches;
    std::vector<std::int32_t> items;
};

/// `groups` (1 <= groups <= adapters) groups of adapters by head-tail pairing of their mean sample
/// lengths in the block (LoRAFusion section 5.2): sorted by length and dealt to and fro, so that
/// adapters of long samples meet those of short ones. Groups take turns in the order of their first
/// adapter, so that the next batch of an adapter is as far away as possible.
std::vector<Portion> portions(const BlockItems& block, std::int32_t groups);

/// Every portion in as few microbatches as possible: pack_greedy or pack_fewest, on `threads`
/// threads.
std::vector<Bins> pack_filled(const BlockItems& block, const std::vector<Portion>& portions,
                              const PackRules& rules, bool milp);

/// Order of a portion's microbatches. peak: from small ones to the costliest in the middle and
/// back, so that little time passes while the pipeline fills and drains for a lonely adapter.
enum class BinOrder : std::uint8_t { falling, rising, peak };

/// Every portion in microbatches of equal cost, as many as bring their cost nearest to `target`
/// nanoseconds (more where capacity asks for it), by falling cost.
std::vector<Bins> pack_evened(const BlockItems& block, const std::vector<Portion>& portions,
                              std::int64_t target);
/// Microbatches that pack_evened() makes at least.
std::int64_t least_evened(const BlockItems& block, const std::vector<Portion>& portions,
                          std::int64_t target);

/// All portions as one stream cut into microbatches of about `target` nanoseconds: what is left
/// of a portion shares a microbatch with samples of the following ones, chosen so that the sum
/// comes nearest to the target. An adapter's next batch never joins a microbatch that holds its
/// samples.
Bins pack_stream(const BlockItems& block, const std::vector<Portion>& portions,
                 std::int64_t target);

/// The portions' microbatches one after another; those of a portion, which come by falling cost, in
/// that order.
Bins concatenate(const std::vector<Bins>& packed, BinOrder order = BinOrder::falling);

/// LoRAFusion's merge pass: of two neighbouring portions, the later one's last (emptiest)
/// microbatch is emptied into the earlier one's last, whole where capacity allows it, else its
/// shortest samples first; an adapter's next batch never joins a microbatch with samples of it. A
/// merge is kept when the block's simulated time does not grow (in very long blocks several are
/// judged together).
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
    std::int64_t target = 0;             ///< nanoseconds of a microbatch; evened and streamed only
    BinOrder order = BinOrder::falling;  ///< evened only
};

Bins pack_variant(const PackRules& rules, const BlockItems& block, const PackVariant& variant);
/// `parts`: the portions of that many groups.
Bins pack_variant(const PackRules& rules, const BlockItems& block,
                  const std::vector<Portion>& parts, const PackVariant& variant);

/// Packings of one adapter a microbatch, by the policies' rules (pack_microbatches.h).

Bins pack_sequential(const BlockItems& block);
Bins pack_one_f_one_b(const BlockItems& block, std::int32_t stages);
Bins pack_mlora(const BlockItems& block, std::int32_t stages);

}  // namespace loratrain
