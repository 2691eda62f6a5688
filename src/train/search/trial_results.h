#pragma once

#include <vector>

#include "io/run_files/results_file.h"
#include "train/adapter_table.h"

namespace loratrain {

struct TrialEntry {
    AdapterId trial{};
    TrialResult result;
};

/// What results.csv says of the trials of a job with a sweep, those of each dataset best first.
std::vector<TrialEntry> trial_results(const Job& job, const AdapterTable& adapters);

}  // namespace loratrain
