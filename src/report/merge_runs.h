#pragma once

#include <string>
#include <vector>

#include "report/run_record.h"

namespace loratrain {

/// The runs of a sweep's shards (sweep.shard) as one: their trials, in the order of the space where
/// no shard is missing, ranked among all of a dataset (plan/rungs.h); adapters that are no
/// trials as the first run has them. Of the heartbeat sums and the longest time; of what is a run's
/// own (memory, timeline, plan) nothing; provenance of the first. `runs`: not empty. InputError,
/// with all problems, where they are not of one sweep: without a sweep, another base, objective or
/// data, a trial in two of them.
RunRecord merge_runs(const std::string& dir, const std::vector<RunRecord>& runs);

/// Run directory `dir`, or those directly in it as one. InputError where it is no run directory and
/// holds none.
RunRecord read_runs(const std::string& dir);

/// Writes its results.csv anew.
void write_results(const RunRecord& run);

/// What a merged record leaves in its directory beside the page: results.csv, and best.yaml, a job
/// that trains the best trial of every dataset.
void write_merged(const RunRecord& run);

}  // namespace loratrain
