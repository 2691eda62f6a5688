#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/job.h"
#include "io/json_reader.h"

namespace loratrain {

/// Programs that load adapters.
enum class Loader : std::uint8_t { peft, vllm, sglang, llama_cpp };

/// Something that adapter_config.json says and that makes of an adapter more than
/// W x + scaling B A x of its form.
struct ConfigVariant {
    std::string key;
    std::string meaning;          ///< "which ...", behind "KEY is VALUE, "
    std::array<bool, 4> loads{};  ///< by Loader: as it was trained
    bool merges = true;           ///< PEFT's merge_and_unload() can merge it
    std::string hint{};           ///< what to do about it; "" = what goes for all variants
    bool known = true;            ///< it is in the list
    bool loads_in(Loader loader) const { return loads[static_cast<std::size_t>(loader)]; }
};

/// adapter_config.json of a PEFT directory: the one reader for all who read adapters (init_from,
/// ref_adapter, merge, check-export). The table in adapter_config.cpp has every key of PEFT 0.21's
/// LoraConfig and VeraConfig: what is read, what A and B do not depend on, and what is a variant.
class AdapterConfig {
  public:
    /// InputError where the file at `path` cannot be read or is no object. `model`: the base, which
    /// must outlive it; names of one inside of another (ModelSpec::wrapper) become those of the
    /// text model.
    AdapterConfig(const std::string& path, const ModelSpec& model);

    const std::string& path() const { return path_; }
    const Json& get(const char* key) const;
    /// Not null, false, "none" or empty.
    bool has(const char* key) const;
    JsonReader reader(Problems& problems) const { return {document_, path_, "", problems}; }

    /// The variants that are not of `form`, and keys that no list knows, where they are set.
    std::vector<ConfigVariant> variants(const AdapterForm& form) const;
    /// "use_dora is true, which ...".
    std::string text(const ConfigVariant& variant) const;
    /// An adapter with the modules, ranks and alphas of the file, of patterns the first that
    /// matches in the file's order; none and a problem where they cannot be read.
    std::optional<AdapterJob> modules(Problems& problems) const;
    /// Warns of what in the file says nothing of any module of the model (config/dead_rules.h): A
    /// and B are what they are, but somebody meant another rank or scaling.
    void warn_of_dead_rules() const;

  private:
    void leave_wrapper();
    bool ties_its_head() const;

    std::string path_;
    const ModelSpec& model_;
    Json document_;
    OrderedJson ordered_;  ///< the same
};

/// Names in a list, or keys of a pattern, as `path_of` makes them of these.
template <class AnyJson, class PathOf>
AnyJson renamed(const AnyJson& names, const PathOf& path_of) {
    AnyJson result = names.is_object() ? AnyJson::object() : AnyJson::array();
    for (const auto& [key, value] : names.items()) {
        if (names.is_object()) {
            result[path_of(key)] = value;
        } else {
            result.push_back(path_of(value.template get<std::string>()));
        }
    }
    return result;
}

bool is_list_of_texts(const Json& value);

}  // namespace loratrain
