#pragma once

#include <string>
#include <vector>

#include "report/run_record.h"

namespace loratrain {

/// Merges the runs of a sweep's shards (sweep.shard) into one record:
///
/// trials          of all runs, ranked among all of a dataset (plan/rungs.h); in the order of
///                 the space if no shard is missing
/// other adapters  those of the first run
/// heartbeat       sums, and the longest time
/// provenance      that of the first run
/// memory, timeline, plan   left out
///
/// `runs` is not empty. InputError with all problems if they are not shards of one sweep: no sweep,
/// another base, objective or data, or a trial in two runs.
RunRecord merge_runs(const std::string& dir, const std::vector<RunRecord>& runs);

/// Reads run directory `dir`, or merges the run directories directly inside it. InputError if it is
/// no run directory and has none.
RunRecord read_runs(const std::string& dir);

/// Writes the run's results.csv again.
void write_results(const RunRecord& run);

/// Writes the files of a merged record beside the page: results.csv, and best.yaml, a job that
/// trains the best trial of every dataset.
void write_merged(const RunRecord& run);

}  // namespace loratrain
