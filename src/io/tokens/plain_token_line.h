#pragma once

#include <optional>
#include <string_view>

#include "io/tokens/token_file.h"

namespace loratrain {

/// Reads a data line as tokenisers write it, in one walk over its bytes: an object of `input_ids`
/// and perhaps `labels` and `weights` (as many) and `attention_mask` (ones only), each at most
/// once, in any order and spacing, whose values are lists: weights of such numbers as tokens may
/// have, the others of whole numbers in plain decimal digits that fit in 32 bits; only labels may
/// be negative. nullopt: the line is something else, good or bad, and a reader of any JSON must say
/// what.
std::optional<TokenSample> read_plain_token_line(std::string_view text);

}  // namespace loratrain
