#pragma once

#include <string>
#include <vector>

#include "plan/predict/predict.h"

namespace loratrain {

/// Speed, time of the whole job and idle shares.
std::string describe(const Plan& plan, const Prediction& prediction, double planning_seconds);

/// A line per policy: tokens/s, time, idle share, and the gain over it of `chosen`.
std::string describe(const std::vector<PolicyPrediction>& policies, SchedulePolicy chosen);

}  // namespace loratrain
