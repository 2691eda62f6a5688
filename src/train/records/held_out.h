#pragma once

#include "data/loader.h"

namespace loratrain {

/// <run.dir>/held_out.json: per dataset with an eval_split the samples of its file that it is
/// evaluated on, counted from 0, of several files by their names. No file without such a dataset.
/// Root rank only.
void write_held_out(const Job& job, const DatasetFiles& files);

}  // namespace loratrain
