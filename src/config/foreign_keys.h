#pragma once

#include <string>
#include <vector>

#include "config/yaml_tree.h"

namespace loratrain {

/// A key that PEFT, Hugging Face's trainers, axolotl, LLaMA-Factory or others have and jobs do not.
struct ForeignKey {
    const char* keys;       ///< "a b c": one or several that mean the same
    const char* harmless;   ///< values that ask for what is done anyway, "a b c"; "*" = every value
    const char* answer;     ///< what they are here; may be "" where a key takes their place
    const char* ours = "";  ///< that key; "" = none does
    const char* section = "";  ///< its JobKey::section
};

/// nullptr = nobody's; the one that a key of `section` (JobKey) replaces goes first.
const ForeignKey* foreign_key(const std::string& key, const std::string& section);

/// The value asks for what is done anyway. A null, an empty list or mapping is "null".
bool is_harmless(const ForeignKey& foreign, const YamlNode& value);

/// What to do instead; `section`: where the key was found (JobKey).
std::string answer_to(const ForeignKey& foreign, const std::string& section);

/// Names that others have for a key, sorted.
std::vector<std::string> names_elsewhere(const std::string& section, const std::string& key);

}  // namespace loratrain
