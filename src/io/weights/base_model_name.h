#pragma once

#include <string>

namespace loratrain {

/// What adapters name as their base model, so that PEFT finds it: of a folder in the cache of the
/// hub (models--ORG--NAME/snapshots/...) the hub name ORG/NAME; the hub name that `_name_or_path`
/// of config.json gives where it ends like the folder (else it may be the model that this one was
/// tuned from); otherwise the folder, absolute.
std::string base_model_name(const std::string& hf_dir, const std::string& config_json);

}  // namespace loratrain
