#include "base/error.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

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

/// Where the file system refuses what only a person can change.
const char* hint_for(std::errc code, bool has_path) {
    if (code == std::errc::filename_too_long) return "give a shorter path";
    if (code == std::errc::no_such_file_or_directory && !has_path) {
        return "the working directory has been removed; change to another one";
    }
    if (code == std::errc::permission_denied) return "check the permissions of its folders";
    if (code == std::errc::not_a_directory) return "a part of it is not a folder; check the path";
    if (code == std::errc::too_many_symbolic_link_levels) return "its links lead in a circle";
    return "";
}

/// Its begin and end.
std::string shortened(const std::string& path) {
    constexpr std::size_t longest = 200;
    if (path.size() <= longest) return path;
    return cat(path.substr(0, longest / 2), "...", path.substr(path.size() - longest / 2), " (",
               path.size(), " characters)");
}

[[noreturn]] void throw_clearly(const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string();
    const auto code = static_cast<std::errc>(error.code().value());
    const std::string hint = hint_for(code, !path.empty());
    const std::string where = path.empty() ? "working directory" : shortened(path);
    const std::string what = error.code().message();
    if (hint.empty()) throw Error(cat(where, ": ", what));
    throw InputError(where, what, hint);
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

void check_format(const std::string& where, std::string_view found,
                  std::initializer_list<std::string_view> known, const std::string& hint) {
    if (std::find(known.begin(), known.end(), found) != known.end()) return;
    std::vector<std::string> names;
    for (const std::string_view name : known) names.push_back(cat("'", name, "'"));
    throw InputError(where, cat("has format '", found, "', must be ", join(names, " or ")), hint);
}

void clearly(const std::function<void()>& work) {
    try {
        work();
    } catch (const std::filesystem::filesystem_error& error) {
        throw_clearly(error);
    }
}

void fail_check(const char* expression, const char* file, int line, const std::string& message) {
    throw Error(
        cat(file, ":", line, ": check failed: ", expression, message.empty() ? "" : ": ", message));
}

}  // namespace loratrain
