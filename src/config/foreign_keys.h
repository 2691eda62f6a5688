#pragma once

#include <string>
#include <vector>

#include "config/yaml_tree.h"

namespace loratrain {

/// A key of PEFT, Hugging Face's trainers, axolotl, LLaMA-Factory or others that jobs do not have.
struct ForeignKey {
    const char* keys;       ///< "a b c": names with the same meaning
    const char* harmless;   ///< values that ask for what is done anyway, "a b c"; "*" = every value
    const char* answer;     ///< what to do instead; may be "" if `ours` is not
    const char* ours = "";  ///< the key of a job that means the same; "" = none
    const char* section = "";  ///< JobKey::section of `ours`
};

/// nullptr = not known. If several rows have the key, the one for `section` (JobKey).
const ForeignKey* foreign_key(const std::string& key, const std::string& section);

/// Whether the value asks for what is done anyway. Null, an empty list and an empty mapping are
/// "null".
bool is_harmless(const ForeignKey& foreign, const YamlNode& value);

/// The hint for a key that was found in `section` (JobKey): what to do instead.
std::string answer_to(const ForeignKey& foreign, const std::string& section);

/// Names that others have for a key, sorted.
std::vector<std::string> names_elsewhere(const std::string& section, const std::string& key);

}  // namespace loratrain
