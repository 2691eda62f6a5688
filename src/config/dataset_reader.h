#pragma once

#include <span>
#include <vector>

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads `datasets` of the top level, at least one.
std::vector<DatasetJob> read_datasets(SectionReader& top);

/// The same of a file that adds to a job; there may be none, and the names of `others` are taken.
std::vector<DatasetJob> read_added_datasets(SectionReader& top, std::span<const DatasetJob> others);

/// Gives `split` to those that have nothing to be evaluated on.
void split_by_default(const EvalSplit& split, std::vector<DatasetJob>& datasets);

/// path, one file or several, or files.
extern const OwnKey<DatasetJob> train_files_key;
/// eval_path, likewise.
extern const OwnKey<DatasetJob> eval_files_key;

}  // namespace loratrain
