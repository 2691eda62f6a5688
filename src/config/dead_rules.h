#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"

namespace loratrain {

/// What of a key of ModuleKeys says nothing of any module: "'q_prj' matches no target".
struct DeadRule {
    const char* key;
    std::string what;
};

/// Those of an adapter, in a model whose layers, numbered below `layers`, have these linears: names
/// of target_modules and exclude_modules that are no module's, layers_to_transform that there are
/// not, layers_pattern that is not what their list is called, and patterns of ranks and alphas that
/// match none of the adapter's targets.
std::vector<DeadRule> dead_rules(const AdapterJob& adapter, std::int64_t layers,
                                 const std::vector<Linear>& linears);
/// Those of an adapter of this model; none are looked for where a job targets experts. That a list
/// names what experts have is right, too.
std::vector<DeadRule> dead_rules(const AdapterJob& adapter, const ModelSpec& model);

/// Patterns of ranks and alphas each of whose targets one before it matches, which counts:
/// "'q_proj' comes behind patterns that match all targets".
std::vector<DeadRule> shadowed_rules(const AdapterJob& adapter, const ModelSpec& model);

/// Names of modules that are no linears of layers; of layers those of the first one.
std::span<const char* const> other_modules();

}  // namespace loratrain
