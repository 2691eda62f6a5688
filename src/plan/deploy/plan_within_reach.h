#pragma once

#include <cstdint>
#include <span>

#include "plan/deploy/make_plan.h"

namespace loratrain {

/// plan_job() of a job that is of interest only where it may reach `least_speed` tokens/s. What is
/// played of layouts is rough: a plan that falls behind by it is predicted as it is, `rounds`
/// rounds at a time (whole_job_speed()), and made anew, searched to the end, if it comes
/// within_reach of `least_speed` then. Otherwise report.falls_behind. Throws as plan_job() does.
PlannedJob plan_within_reach(const Job& job, const ModelSpec& model,
                             std::span<const DatasetInfo> datasets, const Cluster& cluster,
                             double least_speed, std::int32_t rounds);

}  // namespace loratrain
