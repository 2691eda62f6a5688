#pragma once

#include <memory>
#include <vector>

#include "data/loader.h"
#include "io/weights/base_weights.h"
#include "plan/plan.h"
#include "train/checkpoint/checkpoint_reader.h"

namespace loratrain {

/// The files that a job names, opened and checked.
struct JobInputs {
    std::unique_ptr<WeightSource> weights;
    DatasetFiles files;
    std::vector<DatasetInfo> infos;  ///< per DatasetId
};

/// Opens base weights, datasets and PEFT directories and checks them against each other; every
/// problem of every file in one InputError.
JobInputs open_job_inputs(const Job& job);

/// The base weights alone: the job's file, or the synthetic model it names.
std::unique_ptr<WeightSource> open_weights(const Job& job);

/// The weights' model as it is planned: with the job's ExpertCut. InputError if that is `whole` and
/// the model has no experts.
ModelSpec planned_model(const Job& job, const WeightSource& weights);

/// Sets the base model that exported adapters name, if the job does not. Warns if the weights do
/// not say it either, as those of older imports.
void name_base_model(Job& job, const WeightSource& weights);

/// The data files only, for a rank that reads tokens but does not plan.
DatasetFiles open_datasets(const Job& job, std::int64_t vocab_size);

/// Lengths of samples, per DatasetId.
std::vector<DatasetInfo> infos_of(const Job& job, const DatasetFiles& files);

/// What has to be equal in this run and one that continues it.
RunIdentity identify(const Job& job, const JobInputs& inputs);

/// For the log, a line per dataset: "math: 1200 samples, 3 truncated, 1 without target".
std::string describe_datasets(const Job& job, const DatasetFiles& files);

}  // namespace loratrain
