#pragma once

#include <cstddef>
#include <cstdint>

#include "config/job.h"
#include "plan/plan.h"

namespace loratrain {

/// What a profile of costs computes (profile_costs.h).

/// The job's adapters that share a microbatch, as fresh ones with cross-entropy, which takes any
/// samples; of many some from all over the job.
Job profile_job(const Job& job, const Plan& plan);

/// Of a profile_job(): a stage of `profiled_layers` layers alone, one of the head alone, and one of
/// nothing. `plan`: of one replica.
Plan profile_plan(const Job& job, const Plan& plan);
inline constexpr std::int32_t profiled_layers = 2;
inline constexpr std::size_t layer_stage = 0;
inline constexpr std::size_t head_stage = 1;
inline constexpr std::size_t bare_stage = 2;

}  // namespace loratrain
