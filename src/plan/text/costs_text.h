#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"
#include "plan/text/yaml_values.h"

/// The costs in plan_text.h's form. Reading throws Error as yaml_values.h says.
namespace loratrain::plan_yaml {

/// A map: seconds fixed, per row, square, segment; step per parameter, message per byte.
std::string costs_text(const CostModel& c);
/// The key `other_costs` with its list; "" without any.
std::string other_costs_text(const std::vector<DegreeCosts>& others);

CostModel read_costs(const Map& map);
/// Of an entry of `other_costs`.
DegreeCosts read_degree(const Map& map);

}  // namespace loratrain::plan_yaml
