#pragma once

#include <span>
#include <string>

#include "plan/plan.h"
#include "plan/plan_report.h"

namespace loratrain {

/// What --dry-run and the log print for a person: stages and layers, groups, adapters with samples,
/// steps and tokens (of more than a hundred a line for each dataset), memory per rank.
std::string describe(const Job& job, const Plan& plan, const PlanReport& report,
                     std::span<const DatasetInfo> datasets);

}  // namespace loratrain
