#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/capped_problems.h"
#include "io/weights/base_weights.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_shards.h"

namespace loratrain {

/// The linears of a folder that is quantised already (hf_quantization.h): their codes and scales
/// are copied as they are, so that the effective weights are those of the library that made them.
class HfQuantizedLinears {
  public:
    /// Checks names, shapes, types and what says how to read them.
    HfQuantizedLinears(const HfShards& shards, const std::vector<BaseTensor>& linears,
                       const Quantization& configured, CappedProblems& problems);

    const Quantization& quantization() const { return quantization_; }
    /// All tensors of the folder that belong to them.
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
    bool source_known_ = false;  ///< a tensor has said it
    std::vector<std::string> names_;
};

}  // namespace loratrain
