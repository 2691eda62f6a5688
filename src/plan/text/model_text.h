#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

#include "base/weight_format.h"
#include "config/model_spec.h"

/// The models in plan_text.h's form. Reading throws Error as yaml_values.h says.
namespace loratrain::plan_yaml {

/// Of its word.
WeightFormat read_format(const std::string& name);

/// The lines `model:` and `rope:`, and `window_rope:` where layers with sliding windows have
/// another.
std::string model_text(const ModelSpec& m);

/// Of a map that has them.
ModelSpec read_model(const YAML::Node& root);

}  // namespace loratrain::plan_yaml
