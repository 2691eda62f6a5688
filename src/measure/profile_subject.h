#pragma once

#include <cstddef>
#include <cstdint>

#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// The job and the plan that a profile of costs computes (profile_costs.h).

/// The adapters that share a microbatch, as new ones with cross-entropy, which takes any samples.
/// Of many adapters it has a selection from the whole job.
Job profile_job(const Job& job, const Plan& plan);

/// A plan for a profile_job() with three stages: profiled_layers() layers, the head, nothing.
/// `plan` has one replica.
Plan profile_plan(const Job& job, const Plan& plan);
/// The first two layers, of a model with several kinds of mixers the first four, and some layer of
/// each kind among them: costs are means over layers.
std::int32_t profiled_layers(const ModelSpec& model);
inline constexpr std::size_t layer_stage = 0;
inline constexpr std::size_t head_stage = 1;
inline constexpr std::size_t bare_stage = 2;

}  // namespace loratrain
