#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Dimensions of a published model by its short name ("llama-3.1-8b"), for synthetic bases and
/// benchmarks. The endings -nf4, -int8 and -fp8 quantise its linears. None for an unknown name.
std::optional<ModelSpec> model_preset(const std::string& name);

std::vector<std::string> model_preset_names();

}  // namespace loratrain
