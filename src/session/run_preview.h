#pragma once

#include <span>
#include <string>

#include "plan/plan.h"
#include "plan/predict/simulate.h"

namespace loratrain {

inline constexpr const char* preview_name = "preview";  ///< in <run.dir>

/// Pictures and traces of the simulated start of a run.

/// Writes the simulated timeline as <dir>/timeline.svg and <dir>/trace.json.
void write_pictures(const std::string& dir, const Job& job, const Plan& plan,
                    const Timeline& timeline);

/// Writes the expected start of a run to <run.dir>/preview, for its report. An error is only a
/// warning.
void write_preview(const Job& job, const Plan& plan, std::span<const DatasetInfo> datasets);

}  // namespace loratrain
