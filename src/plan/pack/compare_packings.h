#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "plan/pack/block_items.h"
#include "plan/pack/pack_variants.h"

namespace loratrain {

/// Packs a block in several ways and compares their simulated times.

/// A variant and its result.
struct TriedPacking {
    /// Makespan of a packing that was given up before all of it was simulated.
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

/// With more stages than this simulations take long, and fewer packings are compared.
inline constexpr std::size_t many_stages = 16;

/// Packs the block by every variant and simulates it, computed `repeats` times in a row. Filled
/// variants come last, and only those that are not far behind before their portions are merged;
/// with many_stages the fastest four. A makespan that does not matter may become too_long: a
/// packing is given up as soon as bounds show it (LeastTime, pipeline_bound()). Uses rules.threads;
/// makespans that matter do not depend on them.
void compare_packings(const PackRules& rules, const BlockItems& block, int repeats,
                      const Relevance& relevance, std::vector<TriedPacking>& tried);

/// Lower bound of a block's time for a given number of microbatches, however they are packed.
class LeastTime {
  public:
    LeastTime(const PackRules& rules, const BlockItems& block);

    /// Nanoseconds, the largest of all stages: the stage's rows, and the fixed costs of `bins`
    /// microbatches, without waiting. Not above pipeline_time() of the bins.
    std::int64_t in(std::int64_t bins) const;

    /// That computes its rows for the longest.
    std::size_t slowest_stage() const;

  private:
    struct Stage {
        double rows = 0.0;
        double fixed = 0.0;  ///< of a microbatch
    };
    std::vector<Stage> stages_;  ///< nanoseconds
};

/// Fewest microbatches of at most `most_cost` that the block needs; single items may cost more.
std::int64_t least_microbatches(const BlockItems& block, std::int64_t most_cost);

}  // namespace loratrain
