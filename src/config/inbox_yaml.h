#pragma once

#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Reads the files that add adapters to a running job.

/// Datasets and adapters that a file in the inbox adds to a running job.
struct JobAdditions {
    std::vector<DatasetJob> datasets;
    std::vector<AdapterJob> adapters;  ///< their DatasetId counts the job's datasets first
    GivenPaths given_paths{};
};

/// Reads a file of the inbox. Paths are relative to the job file's folder.
/// - `adapters`: at least one; keys as in the job file, names that the job does not have;
/// - `datasets`: optional, with new names;
/// - `defaults`: optional, overlaid on the job's;
/// - `sweep`: its space gives the job's sweep more trials, and may stand for `adapters`.
///
/// Throws InputError with every problem at once; `source` names the text in messages. The result
/// depends on the arguments alone, so all ranks read the same.
JobAdditions read_inbox(const std::string& text, const std::string& source, const Job& job);

/// Adds the additions at the end of the job; existing ids stay valid.
void add_to_job(Job& job, const JobAdditions& additions);

}  // namespace loratrain
