#pragma once

#include <string>
#include <vector>

#include "report/line_chart.h"
#include "report/run_record.h"

namespace loratrain {

/// A report on a run as one HTML page that needs no other file: it has no scripts, and no styles or
/// fonts from elsewhere. Text from the job or its files is escaped. `now` is in seconds since 1970.
std::string report_page(const RunRecord& run, double now);

/// The web page that compares several runs.

/// Largest number of runs in a comparison: each run has a colour of its own.
inline constexpr std::size_t most_compared_runs = palette_size;

/// One HTML page that compares 2 to most_compared_runs runs: time and results of each, all adapters
/// by name, and for every name in several runs its losses, evaluations and gradient norms by step.
std::string comparison_page(const std::vector<RunRecord>& runs, double now);

}  // namespace loratrain
