#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads `datasets` of the top level, at least one. Paths are relative to `folder`.
std::vector<DatasetJob> read_datasets(SectionReader& top, const std::string& folder,
                                      ProblemLog& log);

/// The same of a file that adds to a job; there may be none, and the names of `others` are taken.
std::vector<DatasetJob> read_added_datasets(SectionReader& top, const std::string& folder,
                                            std::span<const DatasetJob> others, ProblemLog& log);

/// Gives `split` to those that have nothing to be evaluated on.
void split_by_default(const EvalSplit& split, std::vector<DatasetJob>& datasets);

}  // namespace loratrain
