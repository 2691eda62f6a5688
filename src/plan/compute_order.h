#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// A forward or backward of one microbatch on one stage.
struct ComputeStep {
    bool backward = false;
    std::int32_t microbatch = 0;
};

struct ComputeOrder {
    std::vector<std::vector<ComputeStep>> stages;
    std::vector<std::int32_t> peak_in_flight;  ///< per stage
};

/// The order in which each stage computes, by list scheduling: all stages are simulated with a
/// forward that costs tokens * stage_cost and a backward that costs twice that; messages are free.
/// A free stage starts what is ready; the first stage prefers a forward, the others a backward
/// (mLoRA section 3, priority rules). Forwards and backwards each go in microbatch order.
/// A forward waits while max_in_flight - stage (at least 1) microbatches are in flight there; on
/// the first stage also until the previous batch of each of its adapters has had its last backward
/// there. Evaluation windows have forwards only.
/// `window`: batches and microbatches are filled.
ComputeOrder compute_order(const Plan& plan, const Window& window);

}  // namespace loratrain
