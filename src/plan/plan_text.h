#pragma once

#include <span>
#include <string>

#include "plan/plan.h"

namespace loratrain {

/// The one text form (YAML) of plans and windows: for --dry-run, plan.yaml, the broadcast and
/// tests. Reading what was written gives the same value.
std::string to_text(const Plan& plan);
Plan plan_from_text(const std::string& text);
std::string to_text(const Window& window);
Window window_from_text(const std::string& text);

/// What --dry-run and the log print for a person: stages and layers, groups, adapters with samples,
/// steps and tokens, memory per rank.
std::string describe(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets);

}  // namespace loratrain
