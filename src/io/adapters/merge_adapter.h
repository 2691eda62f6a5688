#pragma once

#include <cstdint>
#include <string>

#include "io/weights/base_weights.h"

namespace loratrain {

struct MergeReport {
    std::int64_t modules = 0;  ///< with LoRA
    std::int64_t files = 0;
    std::uint64_t bytes = 0;  ///< of tensors
};

/// Bytes of tensors in one file, as transformers has shards by default.
inline constexpr std::uint64_t usual_shard_bytes = 5'000'000'000;

/// A Hugging Face folder `output` with W + scaling B A of the adapter in `dir`, a PEFT directory,
/// in the place of W: model.safetensors, or several files of at most `shard_bytes` (or one tensor)
/// with their index, config.json, and the tokenizer files of the base's folder where that is here.
/// Tensors keep the type that the base has them in (quantised ones bf16, or fp32 where they came
/// from it); sums are fp32. Tensors are read and written in parts of some MB. The folder appears
/// when it is complete. InputError where it is there already, where the adapter does not fit the
/// base or is not finite, of every variant of LoRA (adapter_config.h), of VeRA, of LoRA on a tied
/// head or an embedding, and of a text model inside of another (ModelSpec::wrapper). The base's own
/// head and embedding, which PEFT writes beside LoRA on the head, must be those of `base`.
MergeReport merge_adapter(const std::string& dir, const WeightSource& base,
                          const std::string& output, std::uint64_t shard_bytes = usual_shard_bytes);

}  // namespace loratrain
