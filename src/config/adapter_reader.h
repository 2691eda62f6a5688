#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "config/job.h"
#include "config/job_key.h"
#include "config/sweep_space.h"
#include "config/yaml_reader.h"

namespace loratrain {

/// What reading an adapter needs to know of the rest of the job.
struct AdapterContext {
    std::uint64_t seed;  ///< run.seed
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
AdapterList read_adapters(SectionReader& top, const AdapterContext& context);

/// A name of ReadContext::datasets.
extern const OwnKey<AdapterJob> dataset_key;
/// init_lora_weights
extern const OwnKey<AdapterJob> start_key;
/// A PEFT directory, or the word for the adapter's start, which is replaced at the end.
extern const OwnKey<AdapterJob> reference_key;
/// transformers has more names than there are optimizers here.
extern const OwnKey<AdapterJob> optim_key;
/// num_train_epochs and max_steps: one of the two given here replaces whatever the defaults say.
extern const OwnKey<AdapterJob> length_key;

}  // namespace loratrain
