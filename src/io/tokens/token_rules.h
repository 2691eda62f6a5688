#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/json_text.h"
#include "io/tokens/token_file.h"

namespace loratrain {

/// What a line or a dataset of tokens may contain: weights, and keys beside those that are read.

/// Limits of a token's weight; beyond them scales of gradients would leave the range of fp32.
inline constexpr double smallest_weight = 1e-30;
inline constexpr double largest_weight = 1e30;
inline constexpr const char* weight_hint = "a token's weight is 0, or from 1e-30 to 1e30";

/// True if a token may have this weight.
bool is_weight(double value);
/// Index of the first value that is no weight.
std::optional<std::size_t> first_bad_weight(std::span<const float> values);

/// The two lists of numbers of a rollout.
inline constexpr const char* rollout_keys[] = {"advantages", "logprobs"};
inline constexpr const char* adapter_step_key = "adapter_step";
inline constexpr const char* adapter_step_hint =
    "it is the number of optimizer steps of the adapter that sampled the rollout, 0 or more";
inline constexpr const char* rollout_hint =
    "an advantage is a finite number; a logprob is the sampler's log-probability of the token, "
    "finite and at most 0";
/// What is wrong with a number of the list `key`; "" = nothing. A logprob may exceed 0 by what a
/// sampler rounds in fp32.
std::string rollout_fault(const std::string& key, double value);

/// Turns weights as given, one for each label, into TokenSample::weights: a label of weight 0
/// becomes no_target, and weights that are all 1 are dropped.
void settle_weights(TokenSample& sample);

/// What is wrong with one line of a data file.
struct LineProblem {
    std::string what;
    std::string hint;
};

/// Throws LineProblem if the line has keys that are not among `known`.
void check_line_keys(const Json& line, const std::vector<std::string>& known);

/// Keys that a line of tokens may have although they are not read, as long as check_spare_keys()
/// accepts their values.
std::vector<std::string> spare_keys();

/// Throws LineProblem if a spare key asks for something that training would not do: the line holds
/// several documents (position_ids and the like), or a target is none (completion_mask and the
/// like). `sample` is the line's; masks are refused if the line has no labels.
void check_spare_keys(const Json& line, const TokenSample& sample);

/// Throws LineProblem unless the attention mask under `key` is all ones: zeros mean padding, which
/// would be trained like any token; other numbers mean documents.
void check_attention_mask(const Json& line, const std::string& key);

/// True for a name by which other programs mark the documents of a packed row.
bool marks_documents(const std::string& key);
inline constexpr const char* one_document_hint =
    "write each document as a sample of its own: samples are packed here, and do not attend to "
    "each other";

}  // namespace loratrain
