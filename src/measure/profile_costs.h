#pragma once

#include <cstddef>
#include <span>

#include "backend/backend.h"
#include "measure/start_shapes.h"
#include "plan/plan.h"

namespace loratrain {

struct ProfiledCosts {
    CostModel costs;
    double probe_seconds = 0.0;  ///< the result of probe_seconds(), measured on the way
    std::size_t prepared = 0;    ///< how many of the start's shapes, counted from the first
};

/// Measures the costs of a rank: seconds of its operators before training begins.

/// Whether the profile of this model on a GPU must not take much more than a second.
bool is_small(const ModelSpec& model);

/// Measures the costs of one rank. Two layers and a head with random weights of the plan's model,
/// with the adapters of its first group, run a few microbatches; lines are fitted to the medians
/// (fit_costs.h).
///
/// loads    up to microbatch_tokens, in samples of mixed lengths up to the job's longest and in
///          short samples; on a processor at most 512 tokens, two of the longest samples or 1e10
///          FLOP, whichever is the most
/// time     half a second to a second on a processor. On a GPU about a second for models below 1e9
///          parameters; what is not measured after `small_seconds` keeps its value in `plan.costs`.
///          Larger models first keep the GPU busy until its clock is at what its power sustains (a
///          cold GPU is a tenth faster than in training): five seconds, in which GEMM algorithms
///          are not timed
/// slow     devices get fewer loads and repetitions, the minimum that separates the per-token from
///          the per-square term; after 15 s the fit uses what has been measured
/// host     of a GPU: timed too (profile_host.h); loads that the host holds up do not count
///          for the device
/// lanes    compute alone; their sums are added from built-in costs
/// messages taken from `plan.costs`
///
/// Afterwards a GPU chooses the GEMM algorithms of `start`, for at most 30 s; training finds them
/// in the backend's file (gemm_cublaslt.h). For larger models that also measures what new shapes
/// take. `plan` has one replica. Frees what it allocates.
ProfiledCosts profile_costs(const Job& job, const Plan& plan, Backend& backend,
                            std::span<const StartShape> start = {}, double small_seconds = 0.9);

/// Only chooses the GEMM algorithms of `start`, as profile_costs does: for a run whose costs are
/// known. Returns how many shapes it came to, counted from the first. Does nothing on a processor.
std::size_t prepare_shapes(const Job& job, const Plan& plan, Backend& backend,
                           std::span<const StartShape> start);

/// Seconds of a forward and a backward of the profile's layers with its largest microbatch. The
/// time grows with what else the host computes meanwhile.
double probe_seconds(const Job& job, const Plan& plan, Backend& backend);

}  // namespace loratrain
