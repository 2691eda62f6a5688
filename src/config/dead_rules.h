#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// Names and patterns in an adapter's keys that match no module, which is an error.

/// A part of a key of ModuleKeys that matches nothing: "'q_prj' matches no target".
struct DeadRule {
    const char* key;
    std::string what;
};

/// The dead rules of an adapter, in a model of `layers` layers with these linears:
/// - names of target_modules and exclude_modules that no module has;
/// - layers_to_transform that do not exist;
/// - a layers_pattern that is not the name of the list of layers;
/// - patterns of ranks and alphas that match none of the adapter's targets.
std::vector<DeadRule> dead_rules(const AdapterJob& adapter, std::int64_t layers,
                                 const std::vector<Linear>& linears);
/// The dead rules of an adapter of this model. Names of an expert's linears count as matched. Empty
/// if the job has MLPs of a model with experts as targets.
std::vector<DeadRule> dead_rules(const AdapterJob& adapter, const ModelSpec& model);

/// Patterns of ranks and alphas without effect: earlier patterns, which take precedence, match all
/// their targets. "'q_proj' comes after patterns that match all its targets".
std::vector<DeadRule> shadowed_rules(const AdapterJob& adapter, const ModelSpec& model);

/// Names of modules other than the linears of layers. Modules of layers have the names of layer 0.
std::span<const char* const> other_modules();

}  // namespace loratrain
