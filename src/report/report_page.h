#pragma once

#include <string>

#include "report/run_record.h"

namespace loratrain {

/// A report on a run as one HTML page that needs no other file: it has no scripts, and no styles or
/// fonts from elsewhere. Text from the job or its files is escaped. `now` is in seconds since 1970.
std::string report_page(const RunRecord& run, double now);

}  // namespace loratrain
