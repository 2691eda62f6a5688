#pragma once

#include <span>
#include <vector>

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads `datasets` of a job file.

/// Reads `datasets` of the top level, at least one.
std::vector<DatasetJob> read_datasets(SectionReader& top);

/// Reads the `datasets` that a file adds to a job, if any; the names of `others` are taken.
std::vector<DatasetJob> read_added_datasets(SectionReader& top, std::span<const DatasetJob> others);

/// Sets eval_split to `split` for datasets of files without data to evaluate on.
void split_by_default(const EvalSplit& split, std::vector<DatasetJob>& datasets);

/// path (one file or several) or files.
extern const OwnKey<DatasetJob> train_files_key;
/// eval_path: one file or several.
extern const OwnKey<DatasetJob> eval_files_key;

}  // namespace loratrain
