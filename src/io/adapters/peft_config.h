#pragma once

#include <cstdint>
#include <string>

#include "config/job.h"
#include "io/capped_problems.h"

namespace loratrain {

/// adapter_config.json as PEFT writes it: indent 2, keys sorted. `layers`: the first so many of the
/// model that have all of the adapter's targets. `in_wrapper`: of a text model inside of another
/// (ModelSpec::wrapper), whose other parts have modules of the same names.
std::string peft_config_text(const AdapterJob& adapter, const std::string& base_model_name_or_path,
                             std::int64_t layers, bool in_wrapper = false);

/// Compares adapter_config.json at `path` with the adapter that starts from it.
void check_peft_config(const std::string& path, const AdapterJob& adapter, const ModelSpec& model,
                       CappedProblems& problems);

}  // namespace loratrain
