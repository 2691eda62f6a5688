#include "config/targets_text.h"

#include <vector>

#include "base/text.h"
#include "config/job_words.h"

namespace loratrain {

std::string targets_text(const AdapterJob& adapter) {
    const ModuleKeys keys = adapter.modules ? adapter.modules->keys() : ModuleKeys{};
    if (!keys.target_regex.empty()) return keys.target_regex;
    if (!keys.target_modules.empty()) return join(keys.target_modules, " ");
    std::vector<std::string> words;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (adapter.targets_linear(linear)) words.emplace_back(module_name(linear));
    }
    if (words.size() == linear_count && !adapter.targets_outer()) return all_linear_word;
    for (const Linear linear : outer_linears) {
        if (adapter.targets_linear(linear)) words.emplace_back(module_name(linear));
    }
    return join(words, " ");
}

}  // namespace loratrain
