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

/// Reads `defaults` and `adapters` of a job file.

/// What reading an adapter needs to know of the rest of the job.
struct AdapterContext {
    std::uint64_t seed;  ///< run.seed
    /// Values of keys that `defaults` lacks too; null = the documented ones.
    const AdapterDefaults* defaults = nullptr;
    /// Adapters that the run has already; their names cannot be used again.
    std::span<const AdapterJob> others;
    /// Makes the adapters of a sweep, which follow those of the list; the list may then be missing.
    const SweepSpace* space = nullptr;
};

/// Adapters, and the defaults that were merged into them.
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
/// ref_adapter: a PEFT directory, or init_from. In the end the reader replaces init_from by the
/// adapter's start.
extern const OwnKey<AdapterJob> reference_key;
/// optim: a word of optim_words. For other optimizers of transformers, the problem's hint says what
/// to write.
extern const OwnKey<AdapterJob> optim_key;
/// num_train_epochs and max_steps: an adapter's own key replaces either key of the defaults.
extern const OwnKey<AdapterJob> length_key;

/// lr_scheduler_type
extern const OwnKey<AdapterJob> lr_schedule_key;
/// warmup_steps, or warmup_ratio if that is given.
extern const OwnKey<AdapterJob> warmup_key;

/// Checks the combination of an adapter's keys and its defaults.
void check_lr_schedule(SectionReader& section, const AdapterJob& job);

/// Reads target_modules, exclude_modules, layers_to_transform, layers_pattern, rank_pattern and
/// alpha_pattern. Given keys replace what the adapter has already. A null means the default.
extern const OwnKey<AdapterJob> modules_key;

/// trainable_token_indices: a list of token ids, or {embed_tokens: list}.
extern const OwnKey<AdapterJob> trained_tokens_key;

/// Checks the combination of an adapter's keys and its defaults.
void check_modules(SectionReader& section, const AdapterJob& job);

/// Logs what cannot be combined with LoRA on lm_head and embed_tokens, and with
/// trainable_token_indices. `job` must have its form.
void check_outer(SectionReader& section, const AdapterJob& job);

}  // namespace loratrain
