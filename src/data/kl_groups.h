#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/tokens/token_file.h"
#include "plan/plan.h"

namespace loratrain {

/// Groups of labelled examples (loss kto): examples, and KL samples from which KL is estimated.

/// An example with a label as it stands in its file, not truncated.
struct Example {
    std::int32_t tokens = 0;
    std::int32_t prompt = 0;  ///< tokens before the completion
    bool undesirable = false;
};

/// The example of a labelled sample. Throws InputError at `where` unless labels are -100 in the
/// prompt, and equal to the ids in a completion that reaches to the end.
Example example_of(const std::string& where, const TokenSample& sample);

/// Groups of k neighbouring examples with a KL sample for each example. A group has 2k samples:
/// example 0 .. k-1, then KL sample 0 .. k-1. KL sample i has the prompt of example i and the
/// completion of example i - 1 (for i = 0 of example k - 1), as TRL pairs them. Samples longer than
/// the limit are truncated.
class KlGroups {
  public:
    KlGroups() = default;
    /// The number of examples is a multiple of k.
    KlGroups(std::vector<Example> examples, std::int64_t k, std::int64_t most_tokens);

    bool empty() const { return examples_.empty(); }
    std::vector<SampleInfo> infos() const;
    /// The sample at `place`, truncated; read(i) returns example i as a whole.
    template <class Read>
    TokenSample sample(std::int64_t place, const Read& read) const {
        const auto [prompt, completion] = parts(place);
        TokenSample whole = read(prompt);
        if (completion != prompt) whole = joined(whole, prompt, read(completion), completion);
        return cut(std::move(whole));
    }
    const std::vector<Example>& examples() const { return examples_; }

  private:
    /// The examples that give the sample at `place` its prompt and its completion.
    std::pair<std::int64_t, std::int64_t> parts(std::int64_t place) const;
    TokenSample joined(const TokenSample& prompt, std::int64_t of_prompt,
                       const TokenSample& completion, std::int64_t of_completion) const;
    TokenSample cut(TokenSample sample) const;
    const Example& at(std::int64_t example) const {
        return examples_[static_cast<std::size_t>(example)];
    }

    std::vector<Example> examples_;
    std::int64_t k_ = 1;
    std::int64_t most_tokens_ = 0;
};

}  // namespace loratrain
