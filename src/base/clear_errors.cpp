#include "base/clear_errors.h"

#include <filesystem>
#include <string>
#include <system_error>

#include "base/error.h"

namespace loratrain {

namespace {

/// Where the file system refuses what only a person can change.
const char* hint_for(std::errc code, bool has_path) {
    if (code == std::errc::filename_too_long) return "give a shorter path";
    if (code == std::errc::no_such_file_or_directory && !has_path) {
        return "the working directory has been removed; change to another one";
    }
    if (code == std::errc::permission_denied) return "check the permissions of its folders";
    if (code == std::errc::not_a_directory) return "a part of it is no folder; check the path";
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

void clearly(const std::function<void()>& work) {
    try {
        work();
    } catch (const std::filesystem::filesystem_error& error) {
        throw_clearly(error);
    }
}

}  // namespace loratrain
