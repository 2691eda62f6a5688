#pragma once

#include <cstdint>
#include <string>

#include "config/model_spec.h"

namespace loratrain {

/// Limits of the engine for models with certain traits: one table, in config/model_limits.cpp,
/// which has the words of every such refusal. Refusals because of sizes are elsewhere
/// (plan/tensor_shard.h, plan/deploy/check_precision.h).

/// What a job may need of a model.
enum class Ability : std::uint8_t {
    training,       ///< any job
    fp8,            ///< model.precision: fp8
    merge,          ///< adapters are merged into its files
    merge_linears,  ///< as well, linears in nf4, int8 or fp8
    merge_mxfp4,    ///< as well, experts in mxfp4
    experts,        ///< LoRA in experts
    // Needed by an adapter on MLPs of a model with experts.
    modules,  ///< linears that differ between layers
    dropout,
    dora,
    vera,
    residual_start,
    // Needed by an adapter that trains rows of tokens.
    tokens_on_stages,  ///< of a pipeline
};

/// A trait of some models, and what is impossible with it.
struct ModelLimit {
    Ability ability;
    bool (*has_trait)(const ModelSpec&);
    std::string (*what)(
        const ModelSpec&);  ///< a clause: "LoRA in the experts of ... cannot be DoRA"
    const char* hint = "";  ///< what to do instead; "" = the caller says it
};

/// The first limit of the table that refuses `ability`; null = none.
const ModelLimit* limit_of(const ModelSpec& model, Ability ability);
/// Whether no limit refuses `ability`.
inline bool can(const ModelSpec& model, Ability ability) {
    return limit_of(model, ability) == nullptr;
}

}  // namespace loratrain
