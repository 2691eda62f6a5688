#include "config/targets_text.h"

#include <vector>

#include "base/text.h"
#include "config/job_words.h"

namespace loratrain {

std::string targets_text(const AdapterJob& adapter) {
    std::vector<std::string> words;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (adapter.targets_linear(linear)) words.emplace_back(module_name(linear));
    }
    return words.size() == linear_count ? all_linear_word : join(words, " ");
}

}  // namespace loratrain
