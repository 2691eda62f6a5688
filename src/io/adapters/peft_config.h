#pragma once

#include <cstdint>
#include <string>

#include "config/job.h"
#include "io/capped_problems.h"

namespace loratrain {

/// Writes and compares adapter_config.json of PEFT.

/// adapter_config.json as PEFT writes it: indent 2, keys sorted. `layers`: the first so many of the
/// model that have all of the adapter's targets. Other parts of a model around a text model
/// (ModelSpec::wrapper) have modules of the same names.
std::string peft_config_text(const AdapterJob& adapter, const std::string& base_model_name_or_path,
                             const ModelSpec& model, std::int64_t layers);

/// Compares adapter_config.json at `path` with the adapter that starts from it.
void check_peft_config(const std::string& path, const AdapterJob& adapter, const ModelSpec& model,
                       CappedProblems& problems);

}  // namespace loratrain
