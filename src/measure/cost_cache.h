#pragma once

#include <map>
#include <optional>
#include <string>

#include "io/json_text.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Measured costs by what they hold for (cost_key).
using CostTable = std::map<std::string, CostModel>;

/// As costs.json has them (plan/cost_fields.h).
OrderedJson cost_json(const CostModel& costs);

/// {"format": "loratrain-costs-3", "costs": {KEY: COSTS}}, without the shapes that this process has
/// met (NewShapeLine::met).
std::string costs_to_json(const CostTable& table);
/// InputError for any other text, of another format too: what other commits have measured would not
/// be used anyway (cost_key).
CostTable costs_from_json(const std::string& text, const std::string& where);

/// What costs depend on, as one line: program, device and threads, ranks that share a host,
/// compute type, weight format, sizes of a layer and of the head, lanes that share them, parameters
/// and columns of the adapters that share microbatches, of GPUs the longest sample beyond
/// usual_longest_sample. `device`: rank_device().
std::string cost_key(const Job& job, const ReplicaView& view, const std::string& device,
                     int ranks_per_node);

/// The GPU's name, or the processor's with the threads of this rank.
std::string rank_device(BackendKind backend, int local_rank, int threads);

/// $LORATRAIN_COST_CACHE where set, else loratrain/costs.json in $XDG_CACHE_HOME or ~/.cache; "" =
/// nowhere (an empty LORATRAIN_COST_CACHE, no HOME).
std::string cost_cache_path();

/// The costs of a file under a key; none when it has none. A damaged file is a warning.
std::optional<CostModel> find_costs(const std::string& path, const std::string& key);

/// Adds or replaces the costs of a key in a file, whose folder is made where needed; that it cannot
/// be written is a warning. Of two programs that write at the same time one may be lost.
void keep_costs(const std::string& path, const std::string& key, const CostModel& costs);

}  // namespace loratrain
