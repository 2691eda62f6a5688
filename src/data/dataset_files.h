#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/job.h"
#include "data/dataset.h"
#include "plan/plan.h"

namespace loratrain {

/// The datasets of a job, opened, and what is taken from them beside training.

struct DatasetFiles {
    std::vector<Dataset> train;                  ///< by DatasetId
    std::vector<std::unique_ptr<Dataset>> eval;  ///< by DatasetId, null = none
};

/// Number of samples that a split holds out of `samples`; 0 if none would be left to train on.
std::int64_t held_out_samples(const EvalSplit& split, std::int64_t samples);

/// Opens the datasets of the job that `files` does not have yet, in order. Splits are drawn with
/// run.seed. Adds every problem of every file to `problems`; then `files` must not be used.
void open_datasets(const Job& job, std::int64_t vocab_size, DatasetFiles& files,
                   Problems& problems);

/// Adds a problem for each dataset that grows whose folder is not there, unless the job makes it
/// (DatasetJob::made_in_job). For rank 0, the only one that looks into folders.
void check_growing_folders(const Job& job, Problems& problems);

/// What planning needs to know of a dataset; `job` names its files. `batch`: global_batch_size of
/// the adapter of a dataset that grows; plans expect batches of as many samples of max_seq_len.
DatasetInfo dataset_info(const DatasetFiles& files, DatasetId id, const DatasetJob& job = {},
                         std::int32_t batch = 1);
/// dataset_info()'s `batch`: that of the first of the adapters that has the dataset.
std::int32_t batch_on(std::span<const AdapterJob> adapters, DatasetId dataset);

/// The beginning of a text that an adapter continues: a sample's tokens before its first target.
struct Prompt {
    std::int64_t sample = 0;  ///< in the evaluation data
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> reference;  ///< the sample's targets behind the prompt
};

/// Prompts of the first `most` samples; of groups (pairs of preferences, ...) their first samples.
/// InputError naming `dataset` and the key that asks for them if samples have no token before their
/// first target.
std::vector<Prompt> prompts_in(const Dataset& data, std::int64_t most, const std::string& dataset,
                               const char* asking = "eval.generate");
/// Number of prompts in all of the data.
std::int64_t prompt_count(const Dataset& data);
/// Prompt `i`, read from its file: of sample i, or of the first sample of group i.
Prompt read_prompt(const Dataset& data, std::int64_t i);

/// Adds a problem for each adapter with rewards whose prompts (RewardsJob::prompts) are too few or
/// too long for it, and for each dataset of prompts in which samples have none. Reads each dataset
/// once, whatever the number of its adapters, and keeps lengths alone.
void check_prompts(const Job& job, const DatasetFiles& files, Problems& problems);

/// Writes <run.dir>/held_out.json: for each dataset with an eval_split, the positions of its eval
/// samples in the file, from 0; for several files, by the names of the files. Without such a
/// dataset no file is written. Root rank only.
void write_held_out(const Job& job, const DatasetFiles& files);

}  // namespace loratrain
