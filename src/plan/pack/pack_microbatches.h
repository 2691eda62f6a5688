#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// A group of samples (AdapterPlan::group_samples) waiting for its microbatch.
struct PackItem {
    AdapterId adapter{};
    std::int32_t step = 0;
    std::vector<SampleRef> samples;
    std::int64_t tokens() const;
};

/// Microbatches of about equal tokens, none above `capacity`, at least min(items, at_least) of them
/// and not fewer than first-fit needs: longest item first into the lightest microbatch (LPT),
/// with more microbatches until they fit. Every item must fit into `capacity` alone; items of one
/// adapter are adjacent and belong to one step. Segments and samples inside a microbatch keep the
/// order of the items; microbatches are numbered by their first item.
std::vector<Microbatch> pack_items(std::span<const PackItem> items, std::int64_t capacity,
                                   std::int64_t at_least);

}  // namespace loratrain
