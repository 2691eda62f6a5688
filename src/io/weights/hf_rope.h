#pragma once

#include "config/model_spec.h"
#include "io/json_reader.h"

namespace loratrain {

/// What config.json leaves to the family.
struct RopeDefaults {
    double theta = 10000.0;
    bool by_layer_type = false;     ///< layers with a window have rotary positions of their own
    double window_theta = 10000.0;  ///< of theirs
    bool scales_queries = false;    ///< with llama_4_scaling_beta
    bool must_be_told = false;      ///< rope_parameters or rope_scaling must be there
    double rotated = 0.0;           ///< partial_rotary_factor where not told; 0: a family without
    bool interleaved = false;
    bool longrope = false;  ///< the family may have it, also as type "su"
};

/// Sets spec.rope, and window_rope where it is another. Spellings: rope_theta and rope_scaling,
/// with rope_local_base_freq of layers with windows, which are not scaled then; rope_parameters; by
/// type of layer, rope_parameters {full_attention, sliding_attention}.
void read_ropes(JsonReader& config, const RopeDefaults& defaults, ModelSpec& spec);

}  // namespace loratrain
