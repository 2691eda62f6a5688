#pragma once

#include <cstdint>
#include <string>

#include "config/model_spec.h"

namespace loratrain {

/// What the engine cannot do yet with traits of a model: one table, in config/model_limits.cpp,
/// which gives every such refusal its words. Refusals because of sizes are elsewhere
/// (plan/tensor_shard.h, plan/deploy/check_precision.h).

/// What a job may ask of a model.
enum class Ability : std::uint8_t {
    training,   ///< anything
    lanes,      ///< to be shared by tensor lanes
    quantized,  ///< linears of layers in codes
    fp8,        ///< model.precision: fp8
    // Of an adapter on the linears of its experts.
    modules,  ///< unlike in some layers
    dropout,
    dora,
    vera,
    residual_start,
};

/// A trait of some models, and what cannot be done with it.
struct ModelLimit {
    Ability ability;
    bool (*has_trait)(const ModelSpec&);
    std::string (*what)(const ModelSpec&);  ///< a clause: "lanes cannot share experts"
    const char* hint = "";                  ///< what to do about it; "": the caller knows better
};

/// The first limit of the table that refuses this; null = none.
const ModelLimit* limit_of(const ModelSpec& model, Ability ability);
inline bool can(const ModelSpec& model, Ability ability) {
    return limit_of(model, ability) == nullptr;
}

}  // namespace loratrain
