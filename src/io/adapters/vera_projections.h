#pragma once

#include <vector>

#include "config/job.h"
#include "io/safetensors.h"

namespace loratrain {

/// The projections A and B that all linears of a VeRA adapter share.

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
