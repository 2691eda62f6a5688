#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/tokens/token_file.h"
#include "plan/plan.h"

namespace loratrain {

/// An example with a label as it stands in its file, not cut yet.
struct Example {
    std::int32_t tokens = 0;
    std::int32_t prompt = 0;  ///< tokens before the completion
    bool undesirable = false;
};

/// Of a labelled sample. Throws InputError at `where` unless its labels are -100 over the prompt
/// and its ids over a completion, which goes to the end.
Example example_of(const std::string& where, const TokenSample& sample);

/// How examples with labels become the groups of DatasetInfo: k neighbours, then a KL sample of
/// each: its prompt with the completion of the one before it among the k (of the first: of the
/// last), as TRL pairs them to estimate KL. Samples longer than the limit are cut. All functions
/// are of group order: example 0 .. k-1, KL sample 0 .. k-1, and so on.
class KlGroups {
  public:
    /// `examples` are whole groups of k.
    KlGroups() = default;
    KlGroups(std::vector<Example> examples, std::int64_t k, std::int64_t most_tokens);

    bool empty() const { return examples_.empty(); }
    std::vector<SampleInfo> infos() const;
    /// The sample at `place`, cut; `read` gives an example whole.
    template <class Read>
    TokenSample sample(std::int64_t place, const Read& read) const {
        const auto [prompt, completion] = parts(place);
        TokenSample whole = read(prompt);
        if (completion != prompt) whole = joined(whole, prompt, read(completion), completion);
        return cut(std::move(whole));
    }
    const std::vector<Example>& examples() const { return examples_; }

  private:
    /// The examples whose prompt and completion it has.
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
