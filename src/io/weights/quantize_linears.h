#pragma once

#include <cstdint>
#include <vector>

#include "io/capped_problems.h"
#include "io/weights/base_weights.h"
#include "io/weights/base_writer.h"
#include "io/weights/hf_shards.h"

namespace loratrain {

/// Quantises the linears of a dense Hugging Face folder for base.h5.

/// Checks that the dense linears [out, in] of a folder can be quantised: every row has whole
/// blocks, and all linears have one type. Appends to `problems`. Returns the quantisation that
/// base.h5 will name.
Quantization check_quantizable(const HfShards& shards, const std::vector<BaseTensor>& linears,
                               WeightFormat format, bool store_bf16, CappedProblems& problems);

/// Quantises one linear block of rows by block of rows (base/quantized.h; scales of nf4 are
/// nested). Returns the bytes written. Throws InputError for a nan or an infinity.
std::uint64_t quantize_tensor(const HfShards& shards, const BaseTensor& tensor,
                              const Quantization& quantization, BaseWriter& writer);

}  // namespace loratrain
