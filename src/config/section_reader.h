#pragma once

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads and checks the sections of the top level in front of datasets and adapters.
void read_first_sections(SectionReader& top, Job& job);
/// Reads and checks the sections after them. The split of `eval` goes to datasets without
/// evaluation data; scaling and type of exports go to the adapters.
void read_last_sections(SectionReader& top, Job& job);

/// parallel.deployment: pipeline, auto, or a list of replicas.
extern const OwnKey<ParallelJob, ReplicaJob> deployment_key;
extern const OwnKey<GenerateJob> stop_tokens_key;

}  // namespace loratrain
