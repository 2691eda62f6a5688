#include "config/module_rules.h"

#include <algorithm>
#include <regex>

#include "base/error.h"
#include "base/text.h"
#include "config/name_regex.h"

namespace loratrain {

namespace {

constexpr std::size_t longest_pattern = 1000;
bool is_listed(const std::vector<std::string>& ends, const std::string& name) {
    return std::any_of(ends.begin(), ends.end(),
                       [&](const std::string& end) { return is_name_end(name, end); });
}

std::vector<std::regex> compiled_for_ends(const std::vector<std::string>& patterns) {
    std::vector<std::regex> result;
    result.reserve(patterns.size());
    for (const std::string& pattern : patterns) result.push_back(name_end_regex(pattern));
    return result;
}

template <class T>
std::vector<std::regex> compiled_keys(const std::vector<std::pair<std::string, T>>& patterns) {
    std::vector<std::regex> result;
    result.reserve(patterns.size());
    for (const auto& [pattern, value] : patterns) result.push_back(name_end_regex(pattern));
    return result;
}

template <class T>
std::optional<T> first_match(const std::vector<std::regex>& patterns,
                             const std::vector<std::pair<std::string, T>>& values,
                             const std::string& name) {
    for (std::size_t i = 0; i < patterns.size(); ++i) {
        if (std::regex_match(name, patterns[i])) return values[i].second;
    }
    return std::nullopt;
}

}  // namespace

struct ModuleTable::Patterns {
    explicit Patterns(const ModuleKeys& keys)
        : target(name_regex(keys.target_regex)),
          exclude(name_regex(keys.exclude_regex)),
          ranks(compiled_keys(keys.rank_pattern)),
          alphas(compiled_keys(keys.alpha_pattern)) {
        const std::vector<std::regex> lists = compiled_for_ends(keys.layers_pattern);
        list_fits = lists.empty() || std::any_of(lists.begin(), lists.end(), [](const auto& list) {
                        return std::regex_match(layer_list, list);
                    });
    }

    std::regex target;
    std::regex exclude;
    std::vector<std::regex> ranks;
    std::vector<std::regex> alphas;
    bool list_fits;  ///< layers_pattern
};

std::string regex_problem(const std::string& pattern) {
    if (pattern.size() > longest_pattern) {
        return cat("has ", pattern.size(), " characters, at most ", longest_pattern, " are taken");
    }
    for (const char* python_only :
         {"(?P", "(?<", "(?i", "(?s", "(?x", "(?m", "(?a", "\\A", "\\Z"}) {
        if (pattern.find(python_only) == std::string::npos) continue;
        return cat("uses ", python_only, ", which regular expressions here do not have");
    }
    try {
        name_end_regex(pattern);
        name_regex(pattern);
    } catch (const std::regex_error& error) {
        return cat("is not a usable regular expression: ", error.what());
    }
    return "";
}

bool is_name_end(std::string_view name, std::string_view end) {
    if (!name.ends_with(end)) return false;
    return name.size() == end.size() || name[name.size() - end.size() - 1] == '.';
}

ModuleTable::ModuleTable(ModuleKeys keys, const std::array<bool, linear_count>& targets)
    : keys_(std::move(keys)),
      targets_(targets),
      patterns_(std::make_unique<const Patterns>(keys_)) {}

ModuleTable::~ModuleTable() = default;

ModuleChoice ModuleTable::at(std::int64_t layer, Linear linear) const {
    const std::scoped_lock lock(mutex_);
    const auto place = static_cast<std::size_t>(layer);
    if (place >= layers_.size()) layers_.resize(place + 1);
    if (!layers_[place]) {
        Layer all;
        for (int i = 0; i < linear_count; ++i) {
            all[static_cast<std::size_t>(i)] = choose(layer, static_cast<Linear>(i));
        }
        layers_[place] = all;
    }
    return (*layers_[place])[static_cast<std::size_t>(linear)];
}

bool ModuleTable::is_excluded(const std::string& name) const {
    if (is_listed(keys_.exclude_modules, name)) return true;
    return !keys_.exclude_regex.empty() && std::regex_match(name, patterns_->exclude);
}

bool ModuleTable::regex_targets(const std::string& name) const {
    return !keys_.target_regex.empty() && std::regex_match(name, patterns_->target) &&
           !is_excluded(name);
}

bool ModuleTable::has_layer(std::int64_t layer) const {
    const std::vector<std::int64_t>& layers = keys_.layers_to_transform;
    if (layers.empty()) return true;
    return patterns_->list_fits && std::find(layers.begin(), layers.end(), layer) != layers.end();
}

ModuleChoice ModuleTable::choose(std::int64_t layer, Linear linear) const {
    const std::string name = module_path(layer, linear);
    if (is_excluded(name)) return {};
    bool target = targets_[static_cast<std::size_t>(linear)];
    if (!keys_.target_regex.empty()) {
        target = regex_targets(name);
    } else {
        if (!keys_.target_modules.empty()) target = is_listed(keys_.target_modules, name);
        target = target && has_layer(layer);
    }
    if (!target) return {};
    return {true, first_match(patterns_->ranks, keys_.rank_pattern, name),
            first_match(patterns_->alphas, keys_.alpha_pattern, name)};
}

ModuleChoice ModuleTable::of_outer(Linear linear) const {
    const std::string name = module_path(0, linear);
    return {true, first_match(patterns_->ranks, keys_.rank_pattern, name),
            first_match(patterns_->alphas, keys_.alpha_pattern, name)};
}

int ModuleTable::largest_rank(int r) const {
    for (const auto& [pattern, rank] : keys_.rank_pattern) r = std::max(r, rank);
    return r;
}

}  // namespace loratrain
