#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/tokens/token_file.h"

namespace loratrain {

/// Readers of the formats of token files; open_token_file() chooses one.

/// A file of text lines, each a JSON object.
std::unique_ptr<TokenFile> open_token_jsonl(const std::string& path, bool bytes,
                                            const SampleVisitor& visit);
/// An HDF5 file.
std::unique_ptr<TokenFile> open_token_hdf5(const std::string& path, const SampleVisitor& visit);

/// Reads a line of a .jsonl file as tokenisers write it, in one pass over its bytes. Such a line is
/// an object with keys in any order and spacing, each at most once, whose values are lists:
///   input_ids       whole numbers in plain decimal digits that fit in 32 bits, >= 0
///   labels          optional; as many as input_ids, likewise, but may be negative
///   weights         optional; as many as input_ids, each a weight (token_rules.h)
///   attention_mask  optional; ones only
/// nullopt: the line is anything else, good or bad; a reader of all JSON must decide.
std::optional<TokenSample> read_plain_token_line(std::string_view text);

}  // namespace loratrain
