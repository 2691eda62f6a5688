#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/token_choice.h"
#include "data/dataset_files.h"

namespace loratrain {

/// Texts that ranks write (train/generation.h): the order for one, and the text.

/// How the tokens of a text are chosen.
struct Draw {
    double temperature = 0.0;  ///< as TokenDraw's, and top_p
    double top_p = 1.0;
    std::uint64_t key = 0;  ///< of the random numbers
    std::uint32_t step = 0;
    std::uint32_t prompt = 0;
    std::uint32_t member = 0;  ///< of the prompt's group

    bool is_greedy() const { return temperature == 0.0; }
    /// Of the text's token `position`: its random number is a function of that and of the last four
    /// fields alone.
    TokenDraw of_token(std::uint32_t position) const;
};

/// A text that an adapter is to write.
struct TextOrder {
    AdapterId adapter{};
    Prompt prompt;
    std::int64_t max_new_tokens = 0;
    std::vector<std::int32_t> stop_tokens;  ///< end the text
    Draw draw;
};

/// Indices of the orders that each replica writes: in turn, passing over a replica whose
/// microbatches are shorter than the prompt. `most_tokens`: of a microbatch, per replica. Error if
/// a prompt fits none.
std::vector<std::vector<std::size_t>> deal_texts(std::span<const TextOrder> orders,
                                                 std::span<const std::int64_t> most_tokens);

/// A text that an adapter has written after a prompt.
struct GeneratedText {
    Prompt prompt;
    std::vector<std::int32_t> tokens;  ///< with the stop token, if there was one
    bool stopped = false;
    std::vector<float> logprobs = {};  ///< ChosenToken::logprob of the tokens; greedy: none
};
template <class Archive>
void fields(Archive& archive, Prompt& prompt) {
    archive("sample", prompt.sample);
    archive("tokens", prompt.tokens);
    archive("reference", prompt.reference);
}
template <class Archive>
void fields(Archive& archive, Draw& draw) {
    archive("temperature", draw.temperature);
    archive("top_p", draw.top_p);
    archive("key", draw.key);
    archive("step", draw.step);
    archive("prompt", draw.prompt);
    archive("member", draw.member);
}
template <class Archive>
void fields(Archive& archive, TextOrder& order) {
    archive("adapter", order.adapter);
    archive("prompt", order.prompt);
    archive("max_new_tokens", order.max_new_tokens);
    archive("stop_tokens", order.stop_tokens);
    archive("draw", order.draw);
}
template <class Archive>
void fields(Archive& archive, GeneratedText& text) {
    archive("prompt", text.prompt);
    archive("tokens", text.tokens);
    archive("stopped", text.stopped);
    archive("logprobs", text.logprobs);
}

}  // namespace loratrain
