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
    if (adapter.targets_head) words.emplace_back(module_name(Linear::head));
    return words.size() == linear_count && !adapter.targets_head ? all_linear_word
                                                                 : join(words, " ");
}

}  // namespace loratrain
