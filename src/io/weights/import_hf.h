#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/weight_format.h"

namespace loratrain {

struct ImportOptions {
    bool force = false;       ///< replace an existing output
    bool store_bf16 = false;  ///< convert F32 and F16 tensors to bf16
    /// Base model that exported adapters name; "" = base_model_name().
    std::string base_model_name{};
    std::optional<WeightFormat> quantize{};  ///< the linears of the layers: nf4, int8 or e4m3
};

struct ImportReport {
    std::int64_t tensors = 0;
    std::uint64_t bytes = 0;  ///< of tensor data written
    std::string family;
    std::string wrapper;             ///< ModelSpec::wrapper
    std::int64_t ignored = 0;        ///< tensors of a wrapper outside its text model
    std::string renamed;             ///< HfShards::renamed()
    std::vector<std::string> notes;  ///< hf_config_notes()
    std::string base_model_name;
    /// base_model_name is a quantised folder, and nothing names the model before quantisation.
    bool base_is_quantized = false;
    std::optional<Quantization> quantization;  ///< quantisation of the layers' linears
};

/// Converts an HF model directory (model.safetensors, or model.safetensors.index.json with its
/// shards) to base.h5 (base_weights.h). It streams in blocks and holds at most 64 MiB.
/// - Checks names, shapes and dtypes against config.json before writing; reports all problems at
///   once.
/// - Converts F16 to F32, or to bf16 if store_bf16 is set.
/// - Refuses a tied head that is stored and differs from the embedding, and weights with a nan or
///   an infinity.
/// - Refuses unknown tensors, except rotary inv_freq buffers. Leaves out a wrapper's tensors that
///   do not belong to its text model. Removes extra words in front of tensor names (HfShards).
/// - Keeps codes and scales of a folder that is already quantised, and refuses to quantise it
///   again.
///
/// Writes to a temporary name and renames it; leaves nothing behind on failure.
ImportReport import_hf(const std::string& hf_dir, const std::string& output,
                       const ImportOptions& options);

}  // namespace loratrain
