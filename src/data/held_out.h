#pragma once

#include "config/job.h"
#include "data/dataset_files.h"

namespace loratrain {

/// Writes <run.dir>/held_out.json: for each dataset with an eval_split, the positions of its eval
/// samples in the file, from 0; for several files, by the names of the files. Without such a
/// dataset no file is written. Root rank only.
void write_held_out(const Job& job, const DatasetFiles& files);

}  // namespace loratrain
