#include "data/prompts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace loratrain {

std::vector<Prompt> prompts_in(const Dataset& data, std::int64_t most, const std::string& dataset) {
    const std::int64_t group = std::max<std::int64_t>(1, data.group_samples());
    const std::int64_t samples = std::min(most, std::ssize(data.infos()) / group);
    std::vector<Prompt> prompts;
    std::vector<std::int64_t> without;
    for (std::int64_t i = 0; i < samples; ++i) {
        const TokenSample sample = data.read(i * group);
        const auto is_target = [](std::int32_t label) { return label >= 0; };
        const auto first = std::find_if(sample.labels.begin(), sample.labels.end(), is_target);
        const auto last = std::find_if_not(first, sample.labels.end(), is_target);
        const auto begin = first - sample.labels.begin();
        if (begin == 0) without.push_back(i * group);
        const auto ids = sample.input_ids.begin();
        prompts.push_back(
            {i * group, {ids, ids + begin}, {ids + begin, ids + (last - sample.labels.begin())}});
    }
    if (without.empty()) return prompts;
    throw InputError(
        cat("datasets.", dataset),
        cat(without.size(), " of the ", samples,
            " samples that eval.generate asks for have no prompt, the first is ", without.front(),
            ": their first token is trained already"),
        "prepare the data with prompts that are not trained (labels of -100), or leave "
        "eval.generate out");
}

}  // namespace loratrain
