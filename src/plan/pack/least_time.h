#pragma once

#include <cstdint>
#include <vector>

#include "plan/pack/block_items.h"

namespace loratrain {

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
