#include "plan/deploy/text_batches.h"

#include <algorithm>

#include "plan/deploy/keep_layers.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_texts_at_once = 256;
/// Of a rank's memory, the most that texts take beyond those of few_texts.
constexpr std::uint64_t text_share = 8;

bool fits(const Job& job, const ReplicaView& view) {
    const std::uint64_t memory = view.plan.bytes_per_rank;
    for (std::size_t s = 0; s < view.replica.stages.size(); ++s) {
        if (text_cache_bytes(job, view, view.replica.stages[s]) > memory / text_share) return false;
        if (!fits_rank(view.plan, stage_memory(job, view, s))) return false;
    }
    return true;
}

}  // namespace

std::int64_t texts_at_once(const Job& job, const ReplicaView& view) {
    const bool has_rewards =
        std::any_of(job.adapters.begin(), job.adapters.end(),
                    [](const AdapterJob& adapter) { return adapter.rewards.wanted(); });
    const bool all_train = view.plan.first_admitted.size() == job.adapters.size();
    if (!has_rewards || !all_train) return few_texts;
    ReplicaPlan trial = view.replica;
    for (std::int64_t texts = most_texts_at_once; texts > few_texts; texts -= few_texts) {
        trial.texts_at_once = texts;
        if (fits(job, view.with(trial))) return texts;
    }
    return few_texts;
}

}  // namespace loratrain
