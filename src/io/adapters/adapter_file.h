#pragma once

#include <string>
#include <vector>

#include "config/job.h"
#include "io/safetensors.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// PEFT directories: written, and read as the start or the reference of an adapter.

inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

/// Throws InputError unless `dir` is a directory with both files that PEFT writes.
void require_adapter_directory(const std::string& dir);

/// Writes a PEFT directory, each file atomically: adapter_model.safetensors with the tensors of the
/// adapter's form for each target (exported_adapter.h), and adapter_config.json (PEFT's keys,
/// indent 2, sorted). The quantisation of the base stands as base_quantization in the metadata of
/// the tensors, which PEFT does not read; PEFT's configs refuse or drop unknown keys.
void write_adapter(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model,
                   const std::string& base_model_name_or_path, std::vector<NamedTensor> tensors,
                   const std::string& base_quantization = "");

/// Writes the directory of an adapter whose tensors were exported to the file `weights` before: a
/// copy of that file, and adapter_config.json.
void write_exported_adapter(const std::string& dir, const AdapterJob& adapter,
                            const ModelSpec& model, const std::string& base_model_name_or_path,
                            const std::string& weights);

/// Copies a file of the Hugging Face folder `base` into `dir`, atomically; true if it is there now.
/// Does nothing if `base` is no folder here, such as a name on a hub, or has no such file. A file
/// that cannot be copied is a warning.
bool copy_file_of_model(const std::string& base, const std::string& name, const std::string& dir);

/// Copies the tokenizer and the chat template; returns the number of files.
int copy_tokenizer_files(const std::string& base, const std::string& dir);

/// Checksum over the bytes of both files of a PEFT directory, which must be there.
std::string adapter_checksum(const std::string& dir);

/// A PEFT directory as init_from and ref_adapter read it.
class AdapterFile {
  public:
    /// Checks adapter_config.json and all tensors against the adapter and the model: r, lora_alpha,
    /// use_rslora, patterns, targets, form and shapes must agree, and there must be no variant
    /// (adapter_config.h). InputError with all problems.
    AdapterFile(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model);
    /// The values of a tensor. InputError if one is nan or infinite.
    std::vector<float> read(std::int64_t layer, Linear linear, const FormTensor& tensor,
                            std::int32_t expert = no_expert) const;
    /// Reads every tensor. InputError with all problems: values that read() would refuse;
    /// projections that are not those of projection_prng_key; with `base`, a head or an embedding
    /// that is not the base's own (own_weights()); without, one beside an adapter that trains none.
    void check_values(const WeightSource* base = nullptr) const;

  private:
    std::vector<float> read_finite(const std::string& name) const;

    AdapterJob adapter_;
    ModelSpec model_;
    SafetensorsFile file_;
};

/// Calls AdapterConfig::warn_of_dead_rules() once for each PEFT directory that adapters start from
/// or compare themselves with.
void warn_of_dead_rules(const std::vector<AdapterJob>& adapters, const ModelSpec& model);

/// A tensor of an adapter's file that is the base's own. PEFT writes the head and the embedding
/// beside LoRA on them and where the embedding was resized, and puts them into the base when it
/// loads the directory.
struct OwnWeight {
    std::string tensor;  ///< "base_model.model.lm_head.base_layer.weight", or without base_layer
                         ///< or behind token_adapter, which has rows of tokens
    std::string weight;  ///< name in the base; the embedding's for a head that is tied to it
};
std::vector<OwnWeight> own_weights(const ModelSpec& model);

/// True if the tensor of the file, [V, H], has the base's values, up to the rounding of either to
/// its type. Reads parts of some MB.
bool is_of_base(const SafetensorsFile& file, const OwnWeight& own, const WeightSource& base);

inline constexpr const char* not_of_base =
    "is another than the base's own, in whose place PEFT would load it";
inline constexpr const char* not_of_base_hint = "import the base that it was saved with";

}  // namespace loratrain
