#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/weight_format.h"
#include "io/capped_problems.h"
#include "io/json_reader.h"
#include "io/weights/base_weights.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_shards.h"

namespace loratrain {

/// Linears of a folder that is already quantised (read_hf_quantization()). Their codes and scales
/// are copied unchanged, so the effective weights are those of the library that quantised them.
class HfQuantizedLinears {
  public:
    /// Checks names, shapes, types, and the metadata that says how to read the codes. Appends to
    /// `problems`.
    HfQuantizedLinears(const HfShards& shards, const std::vector<BaseTensor>& linears,
                       const Quantization& configured, CappedProblems& problems);

    const Quantization& quantization() const { return quantization_; }
    /// All tensors of the folder that belong to the linears.
    const std::vector<std::string>& names() const { return names_; }
    std::uint64_t copy(const BaseTensor& tensor, BaseWriter& writer) const;

  private:
    void check(const BaseTensor& tensor, CappedProblems& problems);
    void check_nf4(const BaseTensor& tensor, CappedProblems& problems);
    void check_state(const BaseTensor& tensor, CappedProblems& problems);
    void check_int8(const BaseTensor& tensor, CappedProblems& problems);
    void check_e4m3(const BaseTensor& tensor, CappedProblems& problems);
    bool check_part(const std::string& name, const std::vector<std::string>& dtypes,
                    const std::vector<std::vector<std::int64_t>>& shapes, CappedProblems& problems);
    bool is_nested(const std::string& weight) const;
    std::uint64_t copy_codes(const BaseTensor& tensor, BaseWriter& writer) const;
    std::uint64_t copy_floats(const std::string& from, const std::string& to,
                              const std::vector<std::int64_t>& shape, BaseWriter& writer) const;

    const HfShards& shards_;
    Quantization quantization_;
    bool source_known_ = false;  ///< a tensor's metadata gave the type before quantisation
    std::vector<std::string> names_;
};

/// Quantisation of the layers' linears by `quantization_config` of an HF config.json; none if the
/// key is missing. Accepted; any other is refused by name as a problem of `config`:
///   bitsandbytes, 4 bits nf4 in uint8: nf4; 8 bits: int8
///   fp8 with blocks of 128 x 128: e4m3_block
///   compressed-tensors, float-quantized, 8 bits by channel or tensor: e4m3
/// The type before quantisation is `dtype` or `torch_dtype`; bf16 if both are missing.
std::optional<Quantization> read_hf_quantization(JsonReader& config);
/// Whether quantization_config says mxfp4. Experts in it become bf16 as they are imported
/// (packed_experts.h).
bool is_mxfp4(JsonReader& config);

}  // namespace loratrain
