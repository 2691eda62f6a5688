#pragma once

#include <cstdint>
#include <vector>

#include "io/capped_problems.h"
#include "io/weights/base_weights.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_shards.h"

namespace loratrain {

/// Whether dense linears [out, in] of a folder can be quantised: rows of whole blocks, all of one
/// type. Returns what base.h5 will say of them.
Quantization check_quantizable(const HfShards& shards, const std::vector<BaseTensor>& linears,
                               WeightFormat format, bool store_bf16, CappedProblems& problems);

/// Quantises one (base/quantized.h; scales of nf4 nested) block of rows by block of rows. Returns
/// the bytes written. InputError for a nan or an infinity.
std::uint64_t quantize_tensor(const HfShards& shards, const BaseTensor& tensor,
                              const Quantization& quantization, BaseWriter& writer);

}  // namespace loratrain
