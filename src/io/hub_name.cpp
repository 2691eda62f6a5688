#include "io/hub_name.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/text.h"

namespace loratrain {

namespace {

namespace fs = std::filesystem;

bool is_hub_word(const std::string& word) {
    const auto fits = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    };
    return !word.empty() && word.front() != '.' && std::all_of(word.begin(), word.end(), fits);
}

}  // namespace

std::string download_hint(const std::string& path, const std::string& option,
                          const std::string& then) {
    const fs::path full = fs::path(path).lexically_normal();
    const std::string name = full.filename();
    const std::string org = full.parent_path().filename();
    std::error_code unknown;
    const bool here = fs::exists(full.parent_path(), unknown);
    if (here || !is_hub_word(name) || !is_hub_word(org)) return "";
    return cat(", or, where ", org, "/", name,
               " is a name on a hub, download it first: hf download ", option, org, "/", name,
               " --local-dir ", name, ", and ", then);
}

void require_directory(const std::string& path, const std::string& hint) {
    std::error_code unknown;
    if (fs::is_directory(path, unknown)) return;
    throw InputError(path, "is not a directory", hint + download_hint(path));
}

}  // namespace loratrain
