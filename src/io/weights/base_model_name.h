#pragma once

#include <string>

namespace loratrain {

/// Name of the base model that exported adapters carry, so that PEFT finds it. The first of these
/// that applies:
/// - for a folder in the cache of the Hugging Face hub (models--ORG--NAME/snapshots/...): ORG/NAME;
/// - the hub name in `_name_or_path` of config.json, if its last part equals the folder's name
///   (another name may be of the model that this one was tuned from);
/// - the absolute path of the folder.
std::string base_model_name(const std::string& hf_dir, const std::string& config_json);

/// Name of the model that a quantised folder was made from; adapters of the quantised model work on
/// it as well. It is `_name_or_path` of config.json, if that is a hub name or an absolute path and
/// does not end with the folder's own name. "" = config.json does not name it.
std::string name_before_quantization(const std::string& hf_dir, const std::string& config_json);

}  // namespace loratrain
