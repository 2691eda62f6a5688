#pragma once

#include <optional>

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads `rewards` of an adapter.

/// The dataset that a key names, if the section has the key and the job such a dataset.
std::optional<DatasetId> dataset_named(SectionReader& section, const char* key);

extern const OwnKey<RewardsJob> prompts_key;
extern const OwnKey<RewardsJob> reward_stop_tokens_key;

/// Logs what does not go with rewards.
void check_rewards(SectionReader& section, const AdapterJob& job);

/// Gives each adapter with rewards and without RewardsJob::prompts a dataset of its rollouts:
/// NAME.rollouts, the folder <run.dir>/rollouts/NAME/. Its own dataset has the prompts then. Logs
/// at `place` what does not fit.
void own_rollouts(Job& job, const Place& place, ProblemLog& log);

}  // namespace loratrain
