#pragma once

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// lr_scheduler_type
extern const OwnKey<AdapterJob> lr_schedule_key;
/// warmup_steps, or warmup_ratio if that is given.
extern const OwnKey<AdapterJob> warmup_key;

/// Checks the combination of an adapter's keys and its defaults.
void check_lr_schedule(SectionReader& section, const AdapterJob& job);

}  // namespace loratrain
