#pragma once

#include <string>
#include <vector>

#include "config/yaml_tree.h"

namespace loratrain {

/// A key that PEFT, Hugging Face's trainers, axolotl, LLaMA-Factory or others have and jobs do not.
struct ForeignKey {
    const char* key;
    const char* section;   ///< of the key that takes its place; "" = the top level or none does
    const char* ours;      ///< "" = none does
    const char* answer;    ///< what it is here, beyond that; may be ""
    const char* harmless;  ///< values that ask for what is done anyway, "a b c"; "*" = every value
};

/// nullptr = nobody's; the one that a key of `section` (job_keys.h) replaces goes first.
const ForeignKey* foreign_key(const std::string& key, const std::string& section);

/// The value asks for what is done anyway. A null, an empty list or mapping is "null".
bool is_harmless(const ForeignKey& foreign, const YamlNode& value);

/// What to do instead; `section`: where the key was found (job_keys.h).
std::string answer_to(const ForeignKey& foreign, const std::string& section);

/// Names that others have for a key, in the order of their table.
std::vector<std::string> names_elsewhere(const std::string& section, const std::string& key);

}  // namespace loratrain
