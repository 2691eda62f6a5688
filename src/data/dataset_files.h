#pragma once

#include "base/error.h"
#include "data/loader.h"

namespace loratrain {

/// Samples that a split takes of `samples`; 0 when it would leave none to train on.
std::int64_t held_out_samples(const EvalSplit& split, std::int64_t samples);

/// Opens the files of the job's datasets that `files` does not have yet, in order; every problem of
/// every file goes to `problems` (then `files` is of no use). Splits are drawn by run.seed.
void open_datasets(const Job& job, std::int64_t vocab_size, DatasetFiles& files,
                   Problems& problems);

/// What planning knows of dataset `id` of `files`, whose files `job` names.
DatasetInfo dataset_info(const DatasetFiles& files, DatasetId id, const DatasetJob& job = {});

}  // namespace loratrain
