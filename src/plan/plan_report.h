#pragma once

#include <cstdint>
#include <vector>

namespace loratrain {

/// What the planner reports beside the plan: sizes that fit, layouts that it compared.

/// The largest microbatch_tokens that fit on every rank, without and with recomputation; 0 = not
/// even the longest sample fits. At most most_fitting_tokens.
struct FittingTokens {
    std::int64_t none = 0;
    std::int64_t layer = 0;
};
inline constexpr std::int64_t most_fitting_tokens = std::int64_t{1} << 20U;

/// A size of microbatches that the planner has compared (deploy/search_layout.h).
struct LayoutTrial {
    std::int64_t microbatch_tokens = 0;
    std::int32_t adapters = 0;  ///< that train at once with such microbatches
    double tokens_per_second = 0.0;
};

/// Findings of the planner for people. The runtime never reads them.
struct PlanReport {
    FittingTokens fitting;            ///< unless the plan's bytes_per_rank is 0
    std::vector<LayoutTrial> trials;  ///< compared sizes of microbatches, the chosen one first
    bool falls_behind = false;        ///< its layout was not searched to the end (search_layout.h)
};

}  // namespace loratrain
