#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace loratrain::test {

/// The problems of the InputError that `action` throws; empty and a test failure if none.
inline std::vector<Problem> problems_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const InputError& error) {
        return error.problems();
    }
    ADD_FAILURE() << "no InputError was thrown";
    return {};
}

inline std::string text_of(const std::vector<Problem>& problems) {
    std::string text;
    for (const Problem& problem : problems) text += to_string(problem) + "\n";
    return text;
}

/// All problems as one text; each must name a place.
inline std::string problem_text(const std::function<void()>& action) {
    const std::vector<Problem> problems = problems_of(action);
    for (const Problem& problem : problems) EXPECT_NE(problem.where, "");
    return text_of(problems);
}

inline ::testing::AssertionResult has(const std::string& text, const std::string& part) {
    if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "no '" << part << "' in:\n" << text;
}

}  // namespace loratrain::test
