#pragma once

#include <string>

#include "report/run_record.h"

namespace loratrain {

/// One HTML page about a run that needs nothing else: no scripts, no styles or fonts from
/// elsewhere. Everything that comes from the job or its files is escaped. `now` in seconds since
/// 1970.
std::string report_page(const RunRecord& run, double now);

}  // namespace loratrain
