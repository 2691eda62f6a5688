#pragma once

#include <string>
#include <vector>

#include "report/line_chart.h"
#include "report/run_record.h"

namespace loratrain {

/// A comparison has a colour for each run.
inline constexpr std::size_t most_compared_runs = palette_size;

/// One HTML page about several runs, as report_page() is about one: what each took and came to; the
/// adapters of all by name; and for every name that several runs have, their losses, evaluations
/// and gradient norms step by step. 2 to most_compared_runs runs.
std::string comparison_page(const std::vector<RunRecord>& runs, double now);

}  // namespace loratrain
