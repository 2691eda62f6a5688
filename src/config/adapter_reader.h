#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "config/sweep_space.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// What reading an adapter needs to know of the rest of the job.
struct AdapterContext {
    std::string folder;  ///< of the job file
    std::uint64_t seed;  ///< run.seed
    const std::vector<DatasetJob>& datasets;
    /// Where `defaults` start from; null = at the documented values.
    const AdapterDefaults* defaults = nullptr;
    /// Adapters whose names are taken.
    std::span<const AdapterJob> others;
    /// Gives adapters behind those of the list, which may be missing then.
    const SweepSpace* space = nullptr;
};

struct AdapterList {
    AdapterDefaults defaults;
    std::vector<AdapterJob> adapters;
};

/// Reads `defaults` and `adapters` of the top level: each adapter is the defaults overlaid with
/// its own keys. Those of context.space come behind them.
AdapterList read_adapters(SectionReader& top, const AdapterContext& context, ProblemLog& log);

}  // namespace loratrain
