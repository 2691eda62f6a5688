#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// What a file in the inbox of a running job adds to it.
struct JobAdditions {
    std::vector<DatasetJob> datasets;
    std::vector<AdapterJob> adapters;  ///< DatasetId: the job's datasets come first
};

/// Reads `adapters` (at least one; keys as in the job file, names that the job does not have),
/// `datasets` (optional, new names), `defaults` (optional, overlaid on the job's) and `sweep`,
/// whose space gives the sweep of the job more trials and may stand for `adapters`. Paths are
/// relative to the job file's folder. Throws InputError with every problem at once; `source` names
/// the text in them. Depends on nothing but its arguments, so all ranks read the same.
JobAdditions read_inbox(const std::string& text, const std::string& source, const Job& job);

/// Puts the additions at the end of the job; ids of what it has stay valid.
void add_to_job(Job& job, const JobAdditions& additions);

}  // namespace loratrain
