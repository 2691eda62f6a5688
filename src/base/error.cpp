#include "base/error.h"

#include <utility>

#include "base/printable.h"

namespace loratrain {

namespace {

std::string join_problems(const std::vector<Problem>& problems) {
    std::string text;
    for (const Problem& problem : problems) {
        if (!text.empty()) text += '\n';
        text += to_string(problem);
    }
    return text;
}

}  // namespace

std::string to_string(const Problem& problem) {
    std::string text = problem.where.empty() ? problem.what : problem.where + ": " + problem.what;
    if (!problem.hint.empty()) text += "\n    " + problem.hint;
    return text;
}

InputError::InputError(std::vector<Problem> problems)
    : std::runtime_error(printable(join_problems(problems))), problems_(std::move(problems)) {}

InputError::InputError(std::string where, std::string what, std::string hint)
    : InputError(std::vector<Problem>{{std::move(where), std::move(what), std::move(hint)}}) {}

void Problems::add(std::string where, std::string what, std::string hint) {
    problems_.push_back({std::move(where), std::move(what), std::move(hint)});
}

void Problems::add(const InputError& error) {
    problems_.insert(problems_.end(), error.problems().begin(), error.problems().end());
}

void Problems::throw_if_any() const {
    if (!problems_.empty()) throw InputError(problems_);
}

void fail_check(const char* expression, const char* file, int line, const std::string& message) {
    throw Error(
        cat(file, ":", line, ": check failed: ", expression, message.empty() ? "" : ": ", message));
}

}  // namespace loratrain
