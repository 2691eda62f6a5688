#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace loratrain {

/// What a text is written behind: a sample's tokens before its first target.
struct Prompt {
    std::int64_t sample = 0;  ///< in the evaluation data
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> reference;  ///< the targets that follow it in the sample
};

/// Of the first `most` samples, of groups (pairs of preferences, ...) of their first ones.
/// InputError that names `dataset` where the first targets of samples have nothing before them.
std::vector<Prompt> prompts_in(const Dataset& data, std::int64_t most, const std::string& dataset);

}  // namespace loratrain
