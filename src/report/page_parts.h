#pragma once

#include <string>

#include "report/run_record.h"
#include "report/status_text.h"

namespace loratrain {

/// The sections of the report page, each "" when the run has nothing for it.
namespace report {

std::string style();  ///< CSS
std::string summary(const RunRecord& run, const Pulse& pulse);
std::string adapters(const RunRecord& run, const Pulse& pulse);
/// Leaderboard, parallel coordinates, and what each key matters, per dataset.
std::string sweep(const RunRecord& run);
/// What adapters have written (io/run_files/generations_file.h).
std::string generations(const RunRecord& run);
std::string curves(const RunRecord& run);
std::string throughput(const RunRecord& run);
std::string timeline(const RunRecord& run);
std::string memory(const RunRecord& run);
/// Memory, power and clocks over the time of training.
std::string devices(const RunRecord& run);
std::string provenance(const RunRecord& run);

}  // namespace report
}  // namespace loratrain
