#pragma once

#include <string>
#include <vector>

#include "plan/predict/predict.h"

namespace loratrain {

/// Speed, time of the whole job, idle shares and what blocks were filled by.
std::string describe(const Plan& plan, const Prediction& prediction, double planning_seconds);

/// A line per policy, and for mlora one more with its published rule where that differs: tokens/s,
/// time, idle share, and the gain over it of `chosen`.
std::string describe(const std::vector<PolicyPrediction>& policies, SchedulePolicy chosen);

}  // namespace loratrain
