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

/// PEFT's keys that say which linears of which layers an adapter is on and with what rank there, in
/// an adapter that is not alike in all layers. Names are those of Hugging Face's modules
/// (module_path). Source: PEFT, check_target_module_exists and get_pattern_key.
struct ModuleKeys {
    /// Names or ends of names behind a dot; empty: AdapterJob::targets says all.
    std::vector<std::string> target_modules{};
    std::string target_regex{};  ///< matches whole names; "" = none
    std::vector<std::string> exclude_modules{};
    std::string exclude_regex{};
    std::vector<std::int64_t> layers_to_transform{};  ///< empty = all
    /// Regular expressions of what the layers' list is called, "layers" here; empty = anything.
    std::vector<std::string> layers_pattern{};
    /// By regular expressions for names or ends of names behind a dot; the first that matches.
    std::vector<std::pair<std::string, int>> rank_pattern{};
    std::vector<std::pair<std::string, double>> alpha_pattern{};

    bool operator==(const ModuleKeys&) const = default;
};

/// What ModuleKeys say of one linear.
struct ModuleChoice {
    bool target = false;
    std::optional<int> r;  ///< none: the adapter's
    std::optional<double> lora_alpha;
};

/// ModuleKeys, worked out layer by layer when asked. Thread-safe.
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
    /// Of one of outer_linears, if it is a target.
    ModuleChoice of_outer(Linear linear) const;
    bool is_excluded(const std::string& name) const;
    /// The most that rank_pattern gives, at least `r`.
    int largest_rank(int r) const;
    /// The regular expression of the targets matches the whole name, which is not excluded.
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

/// Why a text is no regular expression that can be used here; "" = it is one.
std::string regex_problem(const std::string& pattern);
/// The name is `end`, or ends with it behind a dot.
bool is_name_end(std::string_view name, std::string_view end);

}  // namespace loratrain
