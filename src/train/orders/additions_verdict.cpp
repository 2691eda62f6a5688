#include "train/orders/additions_verdict.h"

#include <sstream>
#include <string_view>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::string_view verdict_word = "additions";

}  // namespace

/// "additions 0 12\n", the bytes of each, then the problems as they are.
std::string to_text(const AdditionsVerdict& verdict) {
    std::string text(verdict_word);
    for (const std::string& problem : verdict.problems) text += cat(" ", problem.size());
    text += "\n";
    for (const std::string& problem : verdict.problems) text += problem;
    return text;
}

bool is_additions_verdict(const std::string& text) {
    return text.starts_with(verdict_word);
}

AdditionsVerdict additions_verdict_from_text(const std::string& text) {
    LORATRAIN_CHECK(is_additions_verdict(text), "this is no verdict on additions");
    const std::size_t end = text.find('\n');
    LORATRAIN_CHECK(end != std::string::npos, "a verdict on additions is cut off");
    std::istringstream sizes(text.substr(verdict_word.size(), end - verdict_word.size()));
    AdditionsVerdict verdict;
    std::size_t at = end + 1;
    for (std::size_t size = 0; sizes >> size; at += size) {
        LORATRAIN_CHECK(size <= text.size() - at, "a verdict on additions is cut off");
        verdict.problems.push_back(text.substr(at, size));
    }
    LORATRAIN_CHECK(sizes.eof() && at == text.size(), "a verdict on additions is damaged");
    return verdict;
}

}  // namespace loratrain
