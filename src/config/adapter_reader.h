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
    /// Values below `defaults`; null = the documented ones.
    const AdapterDefaults* defaults = nullptr;
    /// Adapters of the run; their names are taken.
    std::span<const AdapterJob> others;
    /// Makes adapters of a sweep, after those of the list; the list may be missing then.
    const SweepSpace* space = nullptr;
};

struct AdapterList {
    AdapterDefaults defaults;
    std::vector<AdapterJob> adapters;
};

/// Reads `defaults` and `adapters` of the top level. An adapter is the defaults overlaid with its
/// own keys. Adapters of context.space come last.
AdapterList read_adapters(SectionReader& top, const AdapterContext& context);

/// dataset: a name of ReadContext::datasets.
extern const OwnKey<AdapterJob> dataset_key;
/// init_lora_weights
extern const OwnKey<AdapterJob> start_key;
/// ref_adapter: a PEFT directory, or init_from, which is replaced by the adapter's start at the
/// end.
extern const OwnKey<AdapterJob> reference_key;
/// optim: a word of optim_words; for other optimizers of transformers the problem says what to
/// write.
extern const OwnKey<AdapterJob> optim_key;
/// num_train_epochs and max_steps: an adapter's own key replaces either key of the defaults.
extern const OwnKey<AdapterJob> length_key;

}  // namespace loratrain
