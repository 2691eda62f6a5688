#pragma once

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// target_modules, exclude_modules, layers_to_transform, layers_pattern, rank_pattern and
/// alpha_pattern, over what the adapter has of them. A null gives what is meant without the key.
extern const OwnKey<AdapterJob> modules_key;

/// What the keys of an adapter and of its defaults must be together.
void check_modules(SectionReader& section, const AdapterJob& job);

/// What LoRA on lm_head and embed_tokens does not go with; `job` with its form.
void check_outer(SectionReader& section, const AdapterJob& job);

}  // namespace loratrain
