#pragma once

#include "config/job.h"
#include "config/job_key.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// Reads the sections of a job file other than datasets and adapters.

/// Reads and checks the sections of the top level that precede datasets and adapters.
void read_first_sections(SectionReader& top, Job& job);
/// Reads and checks the sections that follow datasets and adapters. Datasets without evaluation
/// data get the split of `eval`; adapters get scaling and type of exports.
void read_last_sections(SectionReader& top, Job& job);

/// parallel.deployment: pipeline, auto, or a list of replicas.
extern const OwnKey<ParallelJob, ReplicaJob> deployment_key;
extern const OwnKey<GenerateJob> stop_tokens_key;
/// A token id or a list of them, of `key`, added to `tokens`; and its list, which is left out if it
/// is empty.
void read_token_ids(SectionReader& section, const YamlNode& node, const char* key,
                    std::vector<std::int32_t>& tokens);
void write_token_ids(KeyWriter& out, const char* key, const std::vector<std::int32_t>& tokens);
/// stop_tokens.
void read_stop_tokens(SectionReader& section, std::vector<std::int32_t>& tokens);
void write_stop_tokens(KeyWriter& out, const std::vector<std::int32_t>& tokens);

}  // namespace loratrain
