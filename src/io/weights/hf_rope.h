#pragma once

#include <cstdint>

#include "config/layer_spec.h"
#include "io/json_reader.h"

namespace loratrain {

/// What config.json leaves to the family.
struct RopeDefaults {
    std::int64_t positions = 0;  ///< max_position_embeddings
    double theta = 10000.0;
    bool by_layer_type = false;          ///< sliding layers have rotary positions of their own
    double sliding_theta = 10000.0;      ///< of theirs
    const char* sliding_theta_key = "";  ///< which says it beside rope_scaling; "" = none
    bool scales_queries = false;         ///< with llama_4_scaling_beta
    const char* settings = "{}";         ///< rope_parameters where there are none: JSON
    double rotated = 0.0;  ///< partial_rotary_factor where not given; 0: a family without
    bool interleaved = false;
    /// Type mrope is default: text has the same position on all axes.
    bool by_axes = false;
    bool longrope = false;                ///< the family has it alone, also as type su or yarn
    std::int64_t original_positions = 0;  ///< original_max_position_embeddings; 0 = positions
};

/// Of layers without and with a sliding window.
struct Ropes {
    RopeSpec full;
    RopeSpec sliding;
};

/// As transformers reads them. Spellings: rope_theta and rope_scaling, with rope_local_base_freq of
/// layers with sliding windows, which are not scaled then; rope_parameters; by type of layer,
/// rope_parameters {full_attention, sliding_attention}. Two places that contradict each other are a
/// problem that names both.
Ropes read_ropes(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim);

}  // namespace loratrain
