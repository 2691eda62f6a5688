#pragma once

#include <vector>

#include "config/job.h"
#include "io/safetensors.h"

namespace loratrain {

/// The largest in- and out-features of an adapter's targets, each by itself.
LinearShape largest_target(const AdapterJob& adapter, const ModelSpec& model);

/// What all linears of a VeRA adapter share, to the bit as PEFT draws it from projection_prng_key
/// (tuners/vera/model.py, _init_vera_A_vera_B), under PEFT's names: base_model.vera_A [r, in] and
/// vera_B [out, r] for the largest target; others take the first columns of A and rows of B. Both
/// from one generator, A first, U(-sqrt(6 / n), sqrt(6 / n)) with n columns. Nothing for other
/// forms.
std::vector<NamedTensor> vera_projections(const AdapterJob& adapter, const ModelSpec& model);
/// Their names and shapes alone.
std::vector<NamedTensor> vera_projection_shapes(const AdapterJob& adapter, const ModelSpec& model);

}  // namespace loratrain
