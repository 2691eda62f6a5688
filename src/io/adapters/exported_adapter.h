#pragma once

#include <vector>

#include "config/job.h"
#include "io/safetensors.h"

namespace loratrain {

/// An adapter as files have it: its settings and its tensors.
///   residual start   (has_residual_start) becomes plain LoRA of twice the rank for the unchanged
///                    base: A' = [A; A0], B' = [B, -B0], and an alpha that keeps the scaling.
///                    Source: PEFT, path_initial_model_for_weight_conversion.
///   save_projection  of VeRA: its projections are among the tensors (vera_projections.h).
///   plain_export     (not VeRA) has no use_rslora and no patterns: r is the largest rank, smaller
///   A
///                    and B are padded with zeros, lora_alpha = r s where s is the scaling of
///                    modules that no pattern names, and B of a module with scaling t is B t / s.
///   wrapper          names are those of ModelSpec::wrapper if there is one.
///   export_dtype     bf16: values are rounded.
/// Other adapters are as they are trained.
AdapterJob exported_job(const AdapterJob& adapter);
std::vector<NamedTensor> exported_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                          std::vector<NamedTensor> tensors);

}  // namespace loratrain
