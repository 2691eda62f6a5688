#pragma once

#include <vector>

#include "config/job.h"
#include "io/safetensors.h"

namespace loratrain {

/// An adapter as files have it: its settings and its tensors.
///   residual start   (has_residual_start) becomes plain LoRA of twice the rank for the unchanged
///                    base: A' = [A; A0], B' = [B, -B0], and an alpha that keeps the scaling.
///                    Source: PEFT, path_initial_model_for_weight_conversion.
///   save_projection  of VeRA: its projections are among the tensors (vera_projections()).
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

/// The largest in-features and the largest out-features of an adapter's targets, which may belong
/// to different targets.
LinearShape largest_target(const AdapterJob& adapter, const ModelSpec& model);

/// The projections under PEFT's names: base_model.vera_A [r, in] and base_model.vera_B [out, r] of
/// largest_target(). Smaller linears use the first columns of A and the first rows of B. One
/// generator seeded with projection_prng_key draws A, then B, from U(-sqrt(6 / n), sqrt(6 / n))
/// with n columns. Equal to the bit to PEFT's (tuners/vera/model.py, _init_vera_A_vera_B). Empty
/// for forms other than VeRA.
std::vector<NamedTensor> vera_projections(const AdapterJob& adapter, const ModelSpec& model);
/// vera_projections() with names and shapes, but without values.
std::vector<NamedTensor> vera_projection_shapes(const AdapterJob& adapter, const ModelSpec& model);

}  // namespace loratrain
