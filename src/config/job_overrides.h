#pragma once

#include <vector>

#include "config/job_yaml.h"
#include "config/yaml_tree.h"

namespace loratrain {

/// Writes the overrides into the tree of the job file, in their order; their values carry the
/// place "--set key". Setting one of max_steps and num_train_epochs removes the other where it
/// comes from the file. Unknown keys are left to the reader; an unknown dataset or adapter is
/// logged here.
void apply_overrides(YamlNode& root, const std::vector<Override>& overrides, ProblemLog& log);

}  // namespace loratrain
