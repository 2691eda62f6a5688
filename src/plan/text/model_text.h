#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "config/model_spec.h"

/// The models in plan_text.h's form. Reading throws Error as yaml_values.h says.
namespace loratrain::plan_yaml {

/// The lines `model:` and `rope:`, and `window_rope:` where windows have another.
std::string model_text(const ModelSpec& m);

/// Of a map that has them.
ModelSpec read_model(const YAML::Node& root);

}  // namespace loratrain::plan_yaml
