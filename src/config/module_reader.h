#pragma once

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads target_modules, exclude_modules, layers_to_transform, layers_pattern, rank_pattern and
/// alpha_pattern. Given keys replace what the adapter has already. A null means the default.
extern const OwnKey<AdapterJob> modules_key;

/// Checks the combination of an adapter's keys and its defaults.
void check_modules(SectionReader& section, const AdapterJob& job);

/// Logs what cannot be combined with LoRA on lm_head and embed_tokens. `job` must have its form.
void check_outer(SectionReader& section, const AdapterJob& job);

}  // namespace loratrain
