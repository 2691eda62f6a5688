#pragma once

#include <string>
#include <vector>

#include "io/json_text.h"
#include "io/tokens/token_file.h"

namespace loratrain {

/// What is wrong with one line of a data file.
struct LineProblem {
    std::string what;
    std::string hint;
};

/// Throws LineProblem where the line has keys that are not among `known`.
void check_line_keys(const Json& line, const std::vector<std::string>& known);

/// Keys of a line of tokens beside those that are read: they are taken where they say what
/// check_spare_keys() can do without.
std::vector<std::string> spare_keys();

/// Throws LineProblem where a spare key says what would not be done: that the line holds several
/// documents (position_ids and the like), or that a target is none (completion_mask and the like).
/// `sample` is the line's; where the line has no labels, its masks are refused.
void check_spare_keys(const Json& line, const TokenSample& sample);

/// Throws LineProblem where the attention mask under `key` is not all ones: zeros mean padding,
/// which would be trained like any token, other numbers mean documents.
void check_attention_mask(const Json& line, const std::string& key);

/// A name by which others mark the documents of a packed row.
bool marks_documents(const std::string& key);
inline constexpr const char* one_document_hint =
    "write each document as a sample of its own: samples are packed here, and do not attend to "
    "each other";

}  // namespace loratrain
