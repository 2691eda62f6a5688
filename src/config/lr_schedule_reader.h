#pragma once

#include "config/job.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads lr_scheduler_type, lr_scheduler_kwargs, warmup_steps and warmup_ratio over what the
/// adapter has of them. Another type than the one before goes without the kwargs of that.
void read_lr_schedule(SectionReader& section, AdapterJob& job);

/// What the keys of an adapter and of its defaults must be together.
void check_lr_schedule(SectionReader& section, const AdapterJob& job);

}  // namespace loratrain
