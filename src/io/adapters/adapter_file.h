#pragma once

#include <string>
#include <vector>

#include "config/job.h"
#include "io/safetensors.h"
#include "io/weights/base_weights.h"

namespace loratrain {

inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";

/// A PEFT directory: adapter_model.safetensors with the tensors of the adapter's form for each
/// target, as exported_adapter.h has them, and adapter_config.json (keys as PEFT writes them,
/// indent 2, sorted). Each file atomically. How the base was quantised stands as base_quantization
/// in the metadata of the tensors, which PEFT does not read: its configs refuse or drop keys that
/// it does not know.
void write_adapter(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model,
                   const std::string& base_model_name_or_path,
                   const std::vector<NamedTensor>& tensors,
                   const std::string& base_quantization = "");

/// Over the bytes of both files of a PEFT directory, which must be there.
std::string adapter_checksum(const std::string& dir);

/// A PEFT directory as init_from and ref_adapter read it.
class AdapterFile {
  public:
    /// Checks adapter_config.json and all tensors against the adapter and the model: r, lora_alpha,
    /// use_rslora, patterns, targets, form and shapes must agree, and there is no variant
    /// (adapter_config.h); all problems at once (InputError).
    AdapterFile(const std::string& dir, const AdapterJob& adapter, const ModelSpec& model);
    /// A nan or an infinity is an InputError.
    std::vector<float> read(std::int64_t layer, Linear linear, const FormTensor& tensor,
                            std::int32_t expert = no_expert) const;
    /// Reads every tensor; the values that read() would refuse, projections that are not those of
    /// projection_prng_key, and where `base` is given a head or an embedding that is not its own
    /// (own_weights.h), all at once.
    void check_values(const WeightSource* base = nullptr) const;

  private:
    std::vector<float> read_finite(const std::string& name) const;

    AdapterJob adapter_;
    ModelSpec model_;
    SafetensorsFile file_;
};

/// Once for each PEFT directory that they begin with or compare themselves with
/// (AdapterConfig::warn_of_dead_rules).
void warn_of_dead_rules(const std::vector<AdapterJob>& adapters, const ModelSpec& model);

}  // namespace loratrain
