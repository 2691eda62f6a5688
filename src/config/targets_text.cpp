#include "config/targets_text.h"

#include <algorithm>

#include "base/text.h"
#include "config/job_words.h"

namespace loratrain {

std::vector<std::string> listed_targets(const AdapterJob& adapter) {
    const ModuleKeys keys = adapter.modules ? adapter.modules->keys() : ModuleKeys{};
    if (!keys.target_regex.empty() || !keys.target_modules.empty()) return keys.target_modules;
    std::vector<std::string> words;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        const bool is_new =
            std::find(words.begin(), words.end(), module_name(linear)) == words.end();
        if (adapter.targets_linear(linear) && is_new) words.emplace_back(module_name(linear));
    }
    if (adapter.targets == all_linears() && !adapter.targets_outer()) return {};
    for (const Linear linear : outer_linears) {
        if (adapter.targets_linear(linear)) words.emplace_back(module_name(linear));
    }
    return words;
}

std::string targets_text(const AdapterJob& adapter) {
    const std::vector<std::string> words = listed_targets(adapter);
    if (!words.empty()) return join(words, " ");
    const bool regex = adapter.modules && !adapter.modules->keys().target_regex.empty();
    if (regex) return adapter.modules->keys().target_regex;
    return adapter.targets == all_linears() ? all_linear_word : "";
}

}  // namespace loratrain
