#pragma once

#include <string>

#include "plan/plan.h"

namespace loratrain {

/// Plans as YAML (base/archive.h), for --dry-run, plan.yaml, the broadcast and tests.
/// plan_from_text() returns an equal value for a text of to_text(). Any other text is an InputError
/// at WHERE:line, or an Error.
std::string to_text(const Plan& plan);
Plan plan_from_text(const std::string& text, const std::string& where = "plan text");

}  // namespace loratrain
