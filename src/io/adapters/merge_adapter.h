#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/merged_form.h"
#include "io/adapters/surviving_change.h"
#include "io/weights/base_weights.h"

namespace loratrain {

/// Merging an adapter into its base.

struct MergeReport {
    std::int64_t modules = 0;  ///< with LoRA
    std::int64_t files = 0;
    std::uint64_t bytes = 0;  ///< of tensors
    /// With a form: what is left of the changes of all linears with LoRA.
    ChangesOfModules changes{};
};

/// Largest bytes of tensors in one file: transformers' default for shards.
inline constexpr std::uint64_t usual_shard_bytes = 5'000'000'000;

struct MergeOptions {
    std::optional<MergedForm> form{};  ///< none: the types of the base
    std::uint64_t shard_bytes = usual_shard_bytes;
};

/// Writes the Hugging Face folder `output` with W + scaling B A in place of W, for the adapter in
/// the PEFT directory `dir`. The folder appears when it is complete.
///   files    model.safetensors, or several files of at most shard_bytes (or one tensor) with an
///            index; config.json; the tokenizer files of the base's folder if that is here
///   types    those of the base; quantised tensors become bf16, or fp32 if they were quantised from
///            fp32. Sums are made in fp32.
///   form     weights in few bits (merged_rows.h), made from the fp32 sums, and
///            surviving_changes.json (surviving_change.h). Embedding, head, norms and biases keep
///            their types; so do all linears but the experts in mxfp4.
///   memory   tensors are read and written in parts of some MB, experts of gpt_oss one at a time,
///            scales of codes a tensor at a time
/// The head and the embedding that PEFT writes beside LoRA on the head must be those of `base`.
///
/// Throws InputError if `output` exists, if the adapter does not fit the base or is not finite, and
/// for what cannot be merged: variants of LoRA (adapter_config.h), VeRA, LoRA on a tied head or an
/// embedding, a base that Ability::merge or that of the form excludes (config/model_limits.h), rows
/// that are not whole blocks of the form. Throws Error if the disk has not room for the tensors.
MergeReport merge_adapter(const std::string& dir, const WeightSource& base,
                          const std::string& output, const MergeOptions& options = {});

}  // namespace loratrain
