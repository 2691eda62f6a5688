#pragma once

#include <string>

#include "plan/plan.h"

namespace loratrain {

/// The one text form (YAML) of plans: for --dry-run, plan.yaml, the broadcast and tests. Reading
/// what was written gives the same value; other texts are an Error.
std::string to_text(const Plan& plan);
Plan plan_from_text(const std::string& text);

}  // namespace loratrain
