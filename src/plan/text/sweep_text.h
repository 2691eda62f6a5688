#pragma once

#include <string>

#include "plan/sweep/deploy_sweep.h"

namespace loratrain {

/// The text form (YAML) of a sweep's plan. Reading what was written gives the same value; other
/// texts are an Error.
std::string to_text(const SweepPlan& plan);
SweepPlan sweep_plan_from_text(const std::string& text);

}  // namespace loratrain
