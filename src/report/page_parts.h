#pragma once

#include <string>
#include <vector>

#include "report/html.h"
#include "report/run_record.h"

namespace loratrain {

/// The sections of the report page. A section is "" if the run has no data for it.
namespace report {

std::string style();  ///< CSS
std::string summary(const RunRecord& run);
std::string adapters(const RunRecord& run);
/// Columns of an adapter's keys in tables: form, r, alpha, dropout, targets, batch, learning rate.
std::vector<html::Cell> key_heads();
std::vector<html::Cell> key_cells(const AdapterJob& adapter);
/// Leaderboard, parallel coordinates, and what each key matters, per dataset.
std::string sweep(const RunRecord& run);
/// Texts that adapters have written (io/run_files/metrics_file.h).
std::string generations(const RunRecord& run);
/// Texts that adapters have learned from.
std::string rollouts(const RunRecord& run);
std::string curves(const RunRecord& run);
std::string throughput(const RunRecord& run);
/// Seconds by phase of the run (io/run_files/run_account.h), speed and energy.
std::string account(const RunRecord& run);
std::string timeline(const RunRecord& run);
std::string memory(const RunRecord& run);
/// Memory, power and clocks over the time of training.
std::string devices(const RunRecord& run);
std::string provenance(const RunRecord& run);

}  // namespace report
}  // namespace loratrain
