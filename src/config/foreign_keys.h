#pragma once

#include <string>
#include <vector>

#include "config/yaml_tree.h"

namespace loratrain {

/// Keys of other trainers, and what to write in a job file in their place.

/// A key that jobs do not have, but PEFT, Hugging Face's trainers, axolotl, LLaMA-Factory or others
/// do.
struct ForeignKey {
    const char* keys;  ///< "a b c": names with the same meaning
    /// "a b c": values that ask for what is done in any case; "*" = every value.
    const char* harmless;
    const char* answer;        ///< what to do instead; may be "" if `ours` is not
    const char* ours = "";     ///< the key of a job that means the same; "" = none
    const char* section = "";  ///< JobKey::section of `ours`
};

/// The row of a foreign key; nullptr = not known. If several rows have the key, the row for
/// `section` (JobKey).
const ForeignKey* foreign_key(const std::string& key, const std::string& section);

/// Whether the value asks for what is done in any case. Null, an empty list and an empty mapping
/// are "null".
bool is_harmless(const ForeignKey& foreign, const YamlNode& value);

/// The hint for a foreign key found in `section` (JobKey): what to write instead.
std::string answer_to(const ForeignKey& foreign, const std::string& section);

/// Names that other programs have for a key of a job, sorted.
std::vector<std::string> names_elsewhere(const std::string& section, const std::string& key);

}  // namespace loratrain
