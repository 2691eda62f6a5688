#pragma once

#include <cstdint>
#include <vector>

#include "plan/deploy/candidates.h"
#include "plan/plan_report.h"

namespace loratrain {

/// Searches the fastest layout of a replica by simulation.

/// Of the least speed that is of interest, in the sizes that are looked at first: the others do not
/// gain so much. Whoever gives a layout up for it predicts it first (plan_within_reach.h).
inline constexpr double within_reach = 0.9;

/// The fastest layout by simulation, and the sizes of microbatches that were compared.
struct FoundLayout {
    Candidate chosen;
    std::vector<LayoutTrial> trials;  ///< the taken one first; empty where there was no choice
    bool falls_behind = false;        ///< the search was given up: none reaches least_speed
};

/// Compares what the job leaves open, each layout with the adapters, the recomputed layers and the
/// activations on the host that it needs, by simulation (LayoutPlayer):
/// - sizes of microbatches: eighths of `usual` tokens from the longest sample on, and not below
///   2048 on CUDA or 512 on the CPU, where products would run slower than the costs say; the
///   largest that fit, also in layers split by cost; around the best ones that recompute, and those
///   that do not, down to 64ths, and at last beside the fastest by what is predicted of them;
/// - no recomputation, also with layers moved to stages that have room (fit_layers()), and
///   recomputation of the layers that do not fit;
/// - layers shared by neighbouring stages, or whole;
/// - microbatches in flight, from as many as stages to twice as many: the fewest within 1% of the
///   fastest. What is ready ahead of time fills the pauses that microbatches of unequal cost leave.
///   Where half of every rank's memory is left, half as many again, and beside other adapters at
///   least twice as many as stages, on the CPU four times: played are the first rounds, without
///   messages and jitter, and rounds of fewer adapters gain more.
/// Sizes and recomputation are compared roughly first, with as many in flight as stages; then the
/// best few with all that is left open. Nothing is compared where nothing is open, and of one stage
/// no smaller sizes where `first`, which fits, has the usual one without recomputation. Where none
/// of the first sizes comes within_reach of inputs.least_speed, by simulation or by what its
/// slowest stage computes, the best of them is taken.
FoundLayout search_layout(const DeploymentInputs& inputs, const Candidates& candidates,
                          const Candidate& first);

/// The candidate with shared layers and the depth that search_layout() would give it.
Candidate laid_out(const DeploymentInputs& inputs, const Candidates& candidates,
                   const Candidate& sized);

/// Between depths that are looked at: of more than 16 stages so many that 16 are.
std::int32_t depths_apart(std::int32_t stages);

}  // namespace loratrain
