#include "plan/pack/rounds_at_start.h"

#include <algorithm>

#include "plan/pack/batch_source.h"

namespace loratrain {

std::vector<Round> rounds_at_start(const Job& job, const Plan& plan,
                                   std::span<const DatasetInfo> datasets,
                                   std::vector<AdapterId> adapters, const StartLimits& limits) {
    std::sort(adapters.begin(), adapters.end());
    SampleOrders orders;
    std::vector<BatchSource> sources;
    sources.reserve(adapters.size());
    for (const AdapterId id : adapters) sources.emplace_back(job, plan, id, orders);
    const std::size_t most_of_a_batch =
        std::max<std::size_t>(1, limits.samples / std::max<std::size_t>(1, adapters.size()));
    std::vector<Round> rounds;
    std::size_t samples = 0;
    for (std::int32_t r = 0; r < limits.rounds && samples < limits.samples; ++r) {
        Round round;
        for (std::size_t i = 0; i < adapters.size(); ++i) {
            if (r >= plan.adapters[index(adapters[i])].total_steps) continue;
            round.push_back(sources[i].batch(r, datasets, most_of_a_batch));
            samples += round.back().samples.size();
        }
        if (round.empty()) break;
        rounds.push_back(std::move(round));
    }
    return rounds;
}

}  // namespace loratrain
