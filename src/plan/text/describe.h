#pragma once

#include <span>
#include <string>

#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

/// The plan as --dry-run and the log print it: stages and layers, groups, memory per rank, and
/// adapters with samples, steps and tokens. With more than a hundred adapters, a line per dataset
/// instead of a line per adapter.
std::string describe(const Job& job, const Plan& plan, const PlanReport& report,
                     std::span<const DatasetInfo> datasets);

}  // namespace loratrain
