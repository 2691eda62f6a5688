#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/model_spec.h"

namespace loratrain {

/// Which modules an adapter is on, with which rank and alpha: PEFT's rules for names.

/// PEFT's keys for an adapter that differs between layers: on which linears of which layers it is,
/// and with what rank. Names are those of Hugging Face's modules (module_path). Source: PEFT,
/// check_target_module_exists and get_pattern_key.
struct ModuleKeys {
    /// Names, or ends of names after a dot; empty = AdapterJob::targets alone.
    std::vector<std::string> target_modules{};
    std::string target_regex{};  ///< matches whole names; "" = none
    std::vector<std::string> exclude_modules{};
    std::string exclude_regex{};
    std::vector<std::int64_t> layers_to_transform{};  ///< empty = all
    /// Regular expressions for the name of the list of layers, here "layers"; empty = any.
    std::vector<std::string> layers_pattern{};
    /// By regular expressions for names, or ends of names after a dot; the first match counts.
    std::vector<std::pair<std::string, int>> rank_pattern{};
    std::vector<std::pair<std::string, double>> alpha_pattern{};

    bool operator==(const ModuleKeys&) const = default;
};

/// The result of ModuleKeys for one linear.
struct ModuleChoice {
    bool target = false;
    std::optional<int> r;  ///< none: the adapter's
    std::optional<double> lora_alpha;
};

/// ModuleKeys evaluated layer by layer, on demand. Thread-safe.
class ModuleTable {
  public:
    /// `targets`: the linears without ModuleKeys::target_modules and target_regex. The regular
    /// expressions must be usable (regex_problem).
    ModuleTable(ModuleKeys keys, const std::array<bool, linear_count>& targets);
    ~ModuleTable();
    ModuleTable(const ModuleTable&) = delete;
    ModuleTable& operator=(const ModuleTable&) = delete;

    const ModuleKeys& keys() const { return keys_; }
    const std::array<bool, linear_count>& targets() const { return targets_; }
    ModuleChoice at(std::int64_t layer, Linear linear) const;
    /// The choice for one of outer_linears, if it is a target.
    ModuleChoice of_outer(Linear linear) const;
    bool is_excluded(const std::string& name) const;
    /// The largest rank of rank_pattern, at least `r`.
    int largest_rank(int r) const;
    /// Whether target_regex matches the whole name, and the name is not excluded.
    bool regex_targets(const std::string& name) const;

  private:
    using Layer = std::array<ModuleChoice, linear_count>;
    struct Patterns;

    ModuleChoice choose(std::int64_t layer, Linear linear) const;
    bool has_layer(std::int64_t layer) const;

    ModuleKeys keys_;
    std::array<bool, linear_count> targets_;
    std::unique_ptr<const Patterns> patterns_;
    mutable std::mutex mutex_;
    mutable std::vector<std::optional<Layer>> layers_;
};

/// Why a text is not a usable regular expression; "" = it is one.
std::string regex_problem(const std::string& pattern);
/// Whether the name is `end`, or ends with it after a dot.
bool is_name_end(std::string_view name, std::string_view end);

}  // namespace loratrain
