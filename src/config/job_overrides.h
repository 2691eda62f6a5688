#pragma once

#include <vector>

#include "config/job_yaml.h"
#include "config/yaml_tree.h"

namespace loratrain {

/// Writes the overrides into the tree of the job file, in their order. Values that they set have
/// the place "--set key". Setting max_steps removes num_train_epochs of the file, and the other way
/// round. An unknown dataset or adapter is logged here; the reader logs unknown keys.
void apply_overrides(YamlNode& root, const std::vector<Override>& overrides, ProblemLog& log);

}  // namespace loratrain
