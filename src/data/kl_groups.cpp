#include "data/kl_groups.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace loratrain {

Example example_of(const std::string& where, const TokenSample& sample) {
    const auto begin = std::find_if(sample.labels.begin(), sample.labels.end(),
                                    [](std::int32_t label) { return label != no_target; });
    const std::int64_t prompt = begin - sample.labels.begin();
    if (!std::equal(begin, sample.labels.end(), sample.input_ids.begin() + prompt)) {
        throw InputError(where,
                         "some tokens of the completion are not trained, but kto needs all of them",
                         "give labels of -100 in the prompt, and the ids in the completion");
    }
    return {static_cast<std::int32_t>(sample.input_ids.size()), static_cast<std::int32_t>(prompt),
            sample.label == false};
}

KlGroups::KlGroups(std::vector<Example> examples, std::int64_t k, std::int64_t most_tokens)
    : examples_(std::move(examples)), k_(k), most_tokens_(most_tokens) {
    LORATRAIN_CHECK(k >= 2 && std::ssize(examples_) % k == 0, examples_.size(), " examples by ", k);
}

std::pair<std::int64_t, std::int64_t> KlGroups::parts(std::int64_t place) const {
    const std::int64_t first = place / (2 * k_) * k_;
    const std::int64_t own = place % k_;
    const bool kl_sample = place % (2 * k_) >= k_;
    return {first + own, first + (kl_sample ? (own + k_ - 1) % k_ : own)};
}

std::vector<SampleInfo> KlGroups::infos() const {
    std::vector<SampleInfo> infos;
    for (std::int64_t place = 0; place < 2 * std::ssize(examples_); ++place) {
        const auto [own, other] = parts(place);
        const std::int32_t prompt = at(own).prompt;
        const std::int64_t whole = prompt + (at(other).tokens - at(other).prompt);
        const auto tokens = static_cast<std::int32_t>(std::min(whole, most_tokens_));
        // Labels shift by one: the first is nobody's target.
        infos.push_back({tokens, std::max(0, tokens - std::max(1, prompt)), at(own).undesirable});
    }
    return infos;
}

TokenSample KlGroups::joined(const TokenSample& prompt, std::int64_t of_prompt,
                             const TokenSample& completion, std::int64_t of_completion) const {
    TokenSample kl_sample = prompt;
    kl_sample.input_ids.resize(static_cast<std::size_t>(at(of_prompt).prompt));
    kl_sample.labels.resize(kl_sample.input_ids.size());
    const auto from = completion.input_ids.begin() + at(of_completion).prompt;
    kl_sample.input_ids.insert(kl_sample.input_ids.end(), from, completion.input_ids.end());
    kl_sample.labels.insert(kl_sample.labels.end(), from, completion.input_ids.end());
    return kl_sample;
}

TokenSample KlGroups::cut(TokenSample sample) const {
    if (std::ssize(sample.input_ids) > most_tokens_) {
        sample.input_ids.resize(static_cast<std::size_t>(most_tokens_));
        sample.labels.resize(static_cast<std::size_t>(most_tokens_));
    }
    return sample;
}

}  // namespace loratrain
