#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/pack/block_items.h"
#include "plan/pack/pack_variants.h"

namespace loratrain {

/// A variant and what came of it.
struct TriedPacking {
    /// Of a packing that was found not to matter before all of it was simulated.
    static constexpr std::int64_t too_long = std::numeric_limits<std::int64_t>::max();

    PackVariant variant;
    Bins bins;
    std::int64_t makespan = 0;  ///< simulated, nanoseconds
};

/// Makespans that matter: up to `factor` times the `count`-th smallest of those compared.
struct Relevance {
    std::size_t count = 1;
    double factor = 1.0;
};

/// Beyond so many stages simulations take long, and less is compared.
inline constexpr std::size_t many_stages = 16;

/// Packs the block by every variant and simulates it done `repeats` times in a row. Filled ones
/// come last: only those that are not far behind before they are merged, of many_stages the fastest
/// four. Those whose
/// makespan does not matter may get too_long instead: they are given up as soon as bounds show it
/// (LeastTime, pipeline_bound()). Uses rules.threads; what matters does not depend on them.
void compare_packings(const PackRules& rules, const BlockItems& block, int repeats,
                      const Relevance& relevance, std::vector<TriedPacking>& tried);

/// What a block takes at least in so many microbatches, however they are packed.
class LeastTime {
  public:
    LeastTime(const PackRules& rules, const BlockItems& block);

    /// Of a stage that never waits, the largest: what its rows take, and for every microbatch what
    /// takes no rows. Not above pipeline_time() of the bins; nanoseconds.
    std::int64_t in(std::int64_t bins) const;

  private:
    struct Stage {
        double rows = 0.0;
        double fixed = 0.0;  ///< of a microbatch
    };
    std::vector<Stage> stages_;  ///< nanoseconds
};

/// Microbatches of at most so much cost that the block takes at least, but those of one item.
std::int64_t least_microbatches(const BlockItems& block, std::int64_t most_cost);

}  // namespace loratrain
