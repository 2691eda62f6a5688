#pragma once

#include <string>

#include "config/job.h"
#include "io/capped_problems.h"

namespace loratrain {

/// adapter_config.json as PEFT writes it: indent 2, keys sorted.
std::string peft_config_text(const AdapterJob& adapter, const std::string& base_model_name_or_path);

/// Compares adapter_config.json at `path` with the adapter that starts from it.
void check_peft_config(const std::string& path, const AdapterJob& adapter,
                       CappedProblems& problems);

}  // namespace loratrain
