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

/// adapter_config.json of a PEFT directory: read once, for all that read adapters.

/// Programs that load adapters.
enum class Loader : std::uint8_t { peft, vllm, sglang, llama_cpp };

/// A setting of adapter_config.json that makes an adapter differ from W x + scaling B A x of its
/// form.
struct ConfigVariant {
    std::string key;
    std::string meaning;          ///< "which ...", behind "KEY is VALUE, "
    std::array<bool, 4> loads{};  ///< by Loader: true = loads as it was trained
    bool merges = true;           ///< PEFT's merge_and_unload() can merge the adapter
    std::string hint{};           ///< what to do; "" = the hint for all variants
    bool known = true;            ///< false: a key that is not in the table
    bool loads_in(Loader loader) const { return loads[static_cast<std::size_t>(loader)]; }
};

/// The reader of adapter_config.json for init_from, ref_adapter, merge and check-export. The table
/// in adapter_config.cpp has every key of PEFT 0.21's LoraConfig and VeraConfig: keys that are
/// read, keys on which A and B do not depend, and variants.
class AdapterConfig {
  public:
    /// `model`: the base, which must outlive this object. Names of modules become those of base.h5
    /// (name_of_files). InputError if the file at `path`
    /// cannot be read or is no object.
    AdapterConfig(const std::string& path, const ModelSpec& model);

    const std::string& path() const { return path_; }
    const Json& get(const char* key) const;
    /// True unless the key's value is null, false, "none" or empty.
    bool has(const char* key) const;
    JsonReader reader(Problems& problems) const { return {document_, path_, "", problems}; }

    /// Settings of the file that are variants for `form`, and unknown keys that are set.
    std::vector<ConfigVariant> variants(const AdapterForm& form) const;
    /// "use_dora is true, which ...".
    std::string text(const ConfigVariant& variant) const;
    /// An adapter with the modules, ranks and alphas of the file; of several patterns the first
    /// that matches, in the file's order. None, and a problem, if they cannot be read.
    std::optional<AdapterJob> modules(Problems& problems) const;
    /// target_parameters named the tensors of all experts beside target_modules, as exports have it
    /// where peft_converts_targets() is false; it is left out then, with their patterns.
    bool names_tensors_of_experts() const { return names_tensors_of_experts_; }
    /// Warns of rules in the file that match no module of the model (config/dead_rules.h): whoever
    /// wrote them meant another rank or scaling.
    void warn_of_dead_rules() const;

  private:
    void take_own_names();
    /// What exports have for PEFT beside the names of linears in experts (peft_converts_targets).
    void leave_out_tensors_of_experts();
    bool ties_its_head() const;
    /// Linears beside experts whose weights target_parameters names: "model.layers.0.mlp.up_proj"
    /// of "model.layers.0.mlp.up_proj.weight". None: it names something else too.
    std::vector<std::string> linears_by_weights() const;

    std::string path_;
    const ModelSpec& model_;
    Json document_;
    bool names_tensors_of_experts_ = false;
    OrderedJson ordered_;  ///< the document with keys in the file's order
};

/// Names of a list, or keys of a pattern, each replaced by path_of(name).
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
