#pragma once

#include <cstdint>
#include <string>

#include "config/model_spec.h"

namespace loratrain {

/// What the engine cannot do yet with what a model has: one table, in config/model_limits.cpp, that
/// all refusals of that sort take their words from. What numbers of a job or of a model do not
/// allow is not in it (plan/tensor_shard.h, plan/deploy/check_precision.h).

/// What may be wanted of a model.
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

/// The first that keeps the model from it; null: none does.
const ModelLimit* limit_of(const ModelSpec& model, Ability ability);
inline bool can(const ModelSpec& model, Ability ability) {
    return limit_of(model, ability) == nullptr;
}

}  // namespace loratrain
