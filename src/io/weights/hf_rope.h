#pragma once

#include <cstdint>

#include "config/layer_spec.h"
#include "io/json_reader.h"

namespace loratrain {

/// Reads what config.json says of rotary positions.

/// Rotary-position settings of a family, for keys that config.json lacks.
struct RopeDefaults {
    std::int64_t positions = 0;  ///< max_position_embeddings
    double theta = 10000.0;
    bool by_layer_type = false;  ///< layers with a sliding window have their own rotary positions
    double sliding_theta = 10000.0;      ///< theta of layers with a sliding window
    const char* sliding_theta_key = "";  ///< key of sliding_theta beside rope_scaling; "" = none
    bool scales_queries = false;         ///< the family scales queries (llama_4_scaling_beta)
    const char* settings = "{}";         ///< rope_parameters if config.json has none: JSON
    /// Value of partial_rotary_factor if missing; 0: the family does not have the key.
    double rotated = 0.0;
    bool interleaved = false;
    /// Type dynamic with alpha means type default with theta alpha^(D/(D-2)), D = head_dim.
    bool stretches_theta = false;
    /// Type mrope means type default: text has the same position on all axes.
    bool by_axes = false;
    bool longrope = false;  ///< longrope is the family's only type, also spelled su or yarn
    std::int64_t original_positions = 0;  ///< original_max_position_embeddings; 0 = positions
};

/// Rotary positions of layers without (`full`) and with (`sliding`) a sliding window.
struct Ropes {
    RopeSpec full;
    RopeSpec sliding;
};

/// Reads rotary positions as transformers does. Accepted spellings:
/// - rope_theta and rope_scaling; rope_local_base_freq is the theta of layers with a sliding
///   window, which are then not scaled;
/// - rope_parameters;
/// - rope_parameters by type of layer: {full_attention, sliding_attention}.
///
/// Two places that contradict each other are a problem that names both.
Ropes read_ropes(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim);

}  // namespace loratrain
