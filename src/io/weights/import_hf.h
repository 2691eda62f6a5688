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
    /// What exported adapters name as their base; "" = as base_model_name.h has it.
    std::string base_model_name{};
    std::optional<WeightFormat> quantize{};  ///< the linears of the layers: nf4, int8 or e4m3
};

struct ImportReport {
    std::int64_t tensors = 0;
    std::uint64_t bytes = 0;  ///< of tensor data written
    std::string family;
    std::string wrapper;             ///< ModelSpec::wrapper
    std::int64_t ignored = 0;        ///< tensors of a wrapper that are not the text model's
    std::string renamed;             ///< HfShards::renamed()
    std::vector<std::string> notes;  ///< hf_config_notes()
    std::string base_model_name;
    /// That is a folder quantised before, of which nothing tells what it was made of.
    bool base_is_quantized = false;
    std::optional<Quantization> quantization;  ///< of the linears of the layers
};

/// Streams the safetensors shards of an HF model directory (model.safetensors, or
/// model.safetensors.index.json with its shards) into base.h5 (base_weights.h) in blocks of bounded
/// size (at most 64 MiB held). Checks names, shapes and dtypes against config.json before writing:
/// all problems at once. F16 is converted to F32 unless bf16 is asked for. A tied head that is
/// stored all the same must equal the embedding or is refused. Unknown tensors are refused, except
/// rotary inv_freq buffers, and of a wrapper what is not its text model's, which is left out (other
/// words in front of all names are not minded: HfShards); so
/// are weights with a nan or an infinity. A folder that is quantised already keeps its codes and
/// scales, and cannot be quantised again. Written to a temporary name and renamed; nothing is left
/// behind on failure.
ImportReport import_hf(const std::string& hf_dir, const std::string& output,
                       const ImportOptions& options);

}  // namespace loratrain
