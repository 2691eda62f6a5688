#pragma once

#include <map>
#include <optional>
#include <string>

#include "io/json_text.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Files of measured costs, which later runs read.

/// Measured costs by cost_key().
using CostTable = std::map<std::string, CostModel>;

/// The JSON form of costs in costs.json (plan/cost_fields.h).
OrderedJson cost_json(const CostModel& costs);

/// {"format": "loratrain-costs-3", "costs": {KEY: COSTS}}. NewShapeLine::met is left out: it holds
/// for one process.
std::string costs_to_json(const CostTable& table);
/// Reads costs_to_json(). InputError for any other text or format.
CostTable costs_from_json(const std::string& text, const std::string& where);

/// All that costs depend on, as one line: the program's commit, device and threads, ranks per host,
/// compute type, weight format, sizes of a layer and of the head, lanes, parameters and LoRA
/// columns of the adapters that share microbatches; on GPUs also the longest sample, if it is
/// longer than usual_longest_sample. `device`: rank_device().
std::string cost_key(const Job& job, const ReplicaView& view, const std::string& device,
                     int ranks_per_node);

/// The GPU's name, or the processor's with the threads of this rank.
std::string rank_device(BackendKind backend, int local_rank, int threads);

/// $LORATRAIN_COST_CACHE if set, else loratrain/costs.json in $XDG_CACHE_HOME or ~/.cache. "" means
/// no cache: LORATRAIN_COST_CACHE is empty, or there is no HOME.
std::string cost_cache_path();

/// The costs that a file has under a key, if any. A damaged file is a warning.
std::optional<CostModel> find_costs(const std::string& path, const std::string& key);

/// Adds or replaces the costs of a key in a file; makes its folder if needed. A write that fails is
/// a warning. If two programs write at the same time, the costs of one may be lost.
void keep_costs(const std::string& path, const std::string& key, const CostModel& costs);

}  // namespace loratrain
