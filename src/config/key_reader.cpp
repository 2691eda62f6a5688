#include "config/key_reader.h"

#include <cmath>
#include <limits>

#include "base/text.h"

namespace loratrain {

bool is_whole(double value) {
    return value == std::floor(value) && value <= std::numeric_limits<int>::max();
}

void KeyReader::key(const char* name, std::optional<double>& value, const char* /*help*/,
                    const KeyInfo& info) {
    if (!begin(name, info) || !section_.has(name)) return;
    section_.read(name, value, info.range);
    if (!info.whole || is_whole(*value)) return;
    section_.problem(section_.find(name)->place, name,
                     format_exact(*value) + " is not a whole number", "give a number of steps");
    value.reset();
}

bool KeyReader::begin(const char* name, const KeyInfo& info) {
    if (shared_ && !info.shared) return false;
    if (info.required != nullptr) section_.require(name, info.required);
    const YamlNode* node = section_.find(name);
    const bool null = node != nullptr && node->kind == YamlNode::Kind::null;
    return !(null && (info.null_is_none || null_is_none_));
}

}  // namespace loratrain
