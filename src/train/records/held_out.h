#pragma once

#include "data/loader.h"

namespace loratrain {

/// Writes <run.dir>/held_out.json: for each dataset with an eval_split its eval samples, as places
/// in the file from 0; for several files by their names. No file without such a dataset. Root rank
/// only.
void write_held_out(const Job& job, const DatasetFiles& files);

}  // namespace loratrain
