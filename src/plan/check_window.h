#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace loratrain {

/// Executes all stages' action lists symbolically and returns what is wrong (empty = accepted):
/// - deadlock: every list runs to its end with in-order channels between neighbours, receives
///   matching sends in microbatch and `carried`;
/// - staleness: at every stage, step (a, j) precedes every forward of (a, j+1) and follows every
///   backward of (a, j), and happens only after the norm total reached the stage;
/// - every microbatch is forwarded and backwarded exactly once per stage, both in order
///   (evaluation: forwarded only); every batch is stepped exactly once per stage;
/// - every batch holds exactly its samples, each once (multiset), in microbatches between
///   first_microbatch and last_microbatch; its counts agree;
/// - no microbatch exceeds microbatch_tokens; at most one segment per adapter;
/// - peak in flight per stage equals peak_in_flight and is <= max_in_flight.
std::vector<std::string> check_window(const Plan& plan, const Window& window);

}  // namespace loratrain
