#pragma once

#include <span>
#include <string>

#include "plan/plan.h"
#include "plan/predict/simulate.h"

namespace loratrain {

inline constexpr const char* preview_name = "preview";  ///< in <run.dir>

/// What the simulator expects, as <dir>/timeline.svg and <dir>/trace.json.
void write_pictures(const std::string& dir, const Job& job, const Plan& plan,
                    const Timeline& timeline);

/// The same in <run.dir>/preview for a run that starts, for its report: how the start should look.
/// That they cannot be written is only a warning.
void write_preview(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets);

}  // namespace loratrain
