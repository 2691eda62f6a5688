#include "io/weights/base_model_name.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "io/json_text.h"

namespace loratrain {

namespace fs = std::filesystem;

namespace {

constexpr const char* cache_prefix = "models--";

/// "models--org--name" -> "org/name".
std::string name_of_cache_folder(std::string folder) {
    folder.erase(0, std::string(cache_prefix).size());
    const std::size_t dashes = folder.find("--");
    if (dashes != std::string::npos) folder.replace(dashes, 2, "/");
    return folder;
}

bool is_hub_name(const std::string& text) {
    const auto allowed = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '/' || c == '.' || c == '_' || c == '-';
    };
    return std::count(text.begin(), text.end(), '/') == 1 && text.front() != '/' &&
           text.front() != '.' && text.back() != '/' &&
           std::all_of(text.begin(), text.end(), allowed);
}

/// Whether the last parts of two names or folders are the same word.
bool end_alike(const std::string& one, const std::string& other) {
    return ::strcasecmp(fs::path(one).filename().c_str(), fs::path(other).filename().c_str()) == 0;
}

std::string name_in_config(const std::string& config_json) {
    const Json config = parse_json(config_json, "config.json");
    const auto found = config.find("_name_or_path");
    return found != config.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::string base_model_name(const std::string& hf_dir, const std::string& config_json) {
    const fs::path folder = (fs::absolute(hf_dir) / "").lexically_normal().parent_path();
    for (const fs::path& part : folder) {
        if (part.string().starts_with(cache_prefix)) return name_of_cache_folder(part);
    }
    const std::string name = name_in_config(config_json);
    return is_hub_name(name) && end_alike(name, folder.string()) ? name : folder.string();
}

std::string name_before_quantization(const std::string& hf_dir, const std::string& config_json) {
    const std::string name = name_in_config(config_json);
    const bool clear = is_hub_name(name) || name.starts_with('/');
    return clear && !end_alike(name, base_model_name(hf_dir, config_json)) ? name : "";
}

}  // namespace loratrain
