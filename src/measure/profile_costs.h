#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "measure/start_shapes.h"
#include "plan/plan.h"

namespace loratrain {

struct ProfiledCosts {
    CostModel costs;
    double probe_seconds = 0.0;  ///< what probe_seconds() measures, met on the way
    std::size_t prepared = 0;    ///< of the start's shapes, from the first on
};

/// Models whose profile on a GPU is to take no more than about a second.
bool is_small(const ModelSpec& model);

/// Measured costs of one rank: two layers and a head with random weights of the plan's model and
/// the adapters of its first group run a few microbatches of up to microbatch_tokens, in samples of
/// mixed lengths up to the job's longest and in short ones; lines are fitted to the medians
/// (fit_costs.h). Processors run no more than 512 tokens, two of the longest samples, or 1e10 FLOP,
/// whichever is the most, in half a second to one. For models of a billion
/// parameters and more a GPU is kept busy before, until its clock is what its power sustains: a
/// cold one is a tenth faster than training is; that takes five seconds beside the timing of GEMM
/// algorithms. Smaller models take about a second with it: what is not measured of one after
/// `small_seconds` stays as it is in `plan.costs`. On a GPU the host is timed as well
/// (profile_host.h), and loads that it holds up do not count for the device. What is slower than
/// that is measured with fewer loads and repeats, as few as tell what grows with the tokens from
/// what grows with the length of samples; after 15 s with what there is. Messages are taken from
/// `plan.costs`. A lane computes without the others; their sums are added as built in. On a
/// GPU the GEMM algorithms of `start` are chosen afterwards, for 30 s at most: training finds them
/// in the backend's file (gemm_cublaslt.h). Of larger models there it is measured what new shapes
/// take. `plan`: of one replica. Frees what it allocates.
ProfiledCosts profile_costs(const Job& job, const Plan& plan, Backend& backend,
                            std::span<const StartShape> start = {}, double small_seconds = 0.9);

/// What profile_costs does for `start`, and nothing else: for a run whose costs are known. Returns
/// how many of the shapes, from the first on; on a processor there is nothing to do.
std::size_t prepare_shapes(const Job& job, const Plan& plan, Backend& backend,
                           std::span<const StartShape> start);

/// Seconds of a forward and a backward of those layers with the largest of those microbatches: what
/// changes with what else the host computes meanwhile.
double probe_seconds(const Job& job, const Plan& plan, Backend& backend);

}  // namespace loratrain
