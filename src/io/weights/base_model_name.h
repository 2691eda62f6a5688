#pragma once

#include <string>

namespace loratrain {

/// What adapters name as their base model, so that PEFT finds it: of a folder in the cache of the
/// hub (models--ORG--NAME/snapshots/...) the hub name ORG/NAME; the hub name that `_name_or_path`
/// of config.json gives where it ends like the folder (else it may be the model that this one was
/// tuned from); otherwise the folder, absolute.
std::string base_model_name(const std::string& hf_dir, const std::string& config_json);

/// The model that a quantised folder was made of, on which its adapters work as well: what
/// `_name_or_path` of config.json names, a hub name or an absolute path, where it does not end like
/// the folder's own name; "" = config.json does not tell.
std::string name_before_quantization(const std::string& hf_dir, const std::string& config_json);

}  // namespace loratrain
