#pragma once

#include <vector>

#include "config/job.h"
#include "io/safetensors.h"

namespace loratrain {

/// What files have of an adapter: itself, but of a residual start (has_residual_start) plain LoRA
/// of twice the rank, A' = [A; A0] and B' = [B, -B0], with the alpha that keeps the scaling; so it
/// belongs to the base as it is. Source: PEFT, path_initial_model_for_weight_conversion. Of VeRA
/// with save_projection also its projections (vera_projections.h).
///
/// With AdapterJob::plain_export, but of VeRA, it is without use_rslora and patterns: r is the
/// largest rank, A and B of others get zeros, lora_alpha = r s with s the scaling of modules that
/// no pattern names, and B of a module of another scaling t is B t / s. Names are those of
/// ModelSpec::wrapper where there is one. With AdapterJob::export_dtype bf16 values are rounded.
AdapterJob exported_job(const AdapterJob& adapter);
std::vector<NamedTensor> exported_tensors(const AdapterJob& adapter, const ModelSpec& model,
                                          std::vector<NamedTensor> tensors);

}  // namespace loratrain
