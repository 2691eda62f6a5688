#pragma once

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// lr_scheduler_type
extern const OwnKey<AdapterJob> lr_schedule_key;
/// warmup_steps, and warmup_ratio where that is given.
extern const OwnKey<AdapterJob> warmup_key;

/// What the keys of an adapter and of its defaults must be together.
void check_lr_schedule(SectionReader& section, const AdapterJob& job);

}  // namespace loratrain
