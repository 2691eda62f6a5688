#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>

#include "report/page_parts.h"

namespace loratrain {

namespace {

/// What the pattern's group matches in the text.
std::set<std::string> all_of(const std::string& pattern, const std::string& text) {
    const std::regex regex(pattern);
    std::set<std::string> found;
    for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
        found.insert((*match)[1].str());
    }
    return found;
}

/// Names of the colours of a `:root` that stands behind `before`.
std::set<std::string> colours(const std::string& style, const std::string& before) {
    const std::size_t first = style.find(before + ":root{");
    if (first == std::string::npos) return {};
    return all_of("(--[a-z0-9]+):", style.substr(first, style.find('}', first) - first));
}

}  // namespace

TEST(PageStyle, EveryColourHasADarkOne) {
    const std::string style = report::style();
    const std::set<std::string> light = colours(style, "");
    EXPECT_GT(light.size(), 10U);
    EXPECT_EQ(light, colours(style, "@media (prefers-color-scheme:dark){"));
    for (const std::string& used : all_of("var\\((--[a-z0-9]+)\\)", style)) {
        EXPECT_TRUE(light.contains(used)) << used;
    }
}

}  // namespace loratrain
