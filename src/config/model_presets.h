#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Dimensions of published models under short names ("llama-3.1-8b"), for synthetic bases and
/// benchmarks; with -nf4, -int8 or -fp8 behind the name its linears are quantised. None for an
/// unknown name.
std::optional<ModelSpec> model_preset(const std::string& name);

std::vector<std::string> model_preset_names();

}  // namespace loratrain
