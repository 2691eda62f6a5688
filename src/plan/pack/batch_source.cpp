#include "plan/pack/batch_source.h"

#include <algorithm>

namespace loratrain {

BatchSource::BatchSource(const Job& job, const Plan& plan, AdapterId adapter, SampleOrders& orders)
    : adapter_(adapter),
      spec_(job.adapter(adapter)),
      dataset_(job.dataset(spec_.dataset)),
      plan_(plan.adapters[index(adapter)]),
      orders_(orders) {}

std::vector<std::int32_t> BatchSource::samples(std::int32_t step) {
    const std::int64_t groups = plan_.epoch_samples() / plan_.group_samples;
    const std::int32_t epoch = step / plan_.steps_per_epoch;
    if (epoch != epoch_) {
        order_ = orders_.get(spec_.seed, spec_.dataset, dataset_, epoch, plan_);
        epoch_ = epoch;
    }
    const std::int64_t size = spec_.global_batch_size / group_examples(plan_.group_samples);
    const std::int64_t first = (step % plan_.steps_per_epoch) * size;
    const std::int64_t last = std::min(first + size, groups);
    std::vector<std::int32_t> positions;
    positions.reserve(static_cast<std::size_t>((last - first) * plan_.group_samples));
    for (std::int64_t i = first; i < last; ++i) {
        const std::int32_t group = (*order_)[static_cast<std::size_t>(i)];
        for (std::int32_t s = 0; s < plan_.group_samples; ++s) {
            positions.push_back(group * plan_.group_samples + s);
        }
    }
    return positions;
}

PendingBatch BatchSource::arrived(const Arrivals& arrivals, std::int32_t step,
                                  std::size_t most) const {
    PendingBatch pending{adapter_, step, {}, plan_.group_samples};
    for (const SampleInfo& info : arrivals.of(step).samples) {
        if (pending.samples.size() == most) break;
        const auto place = static_cast<std::int32_t>(pending.samples.size());
        pending.samples.push_back(
            {step * spec_.global_batch_size + place, info.tokens, info.targets});
    }
    return pending;
}

PendingBatch BatchSource::batch(std::int32_t step, std::span<const DatasetInfo> datasets,
                                std::size_t most_groups) {
    const DatasetInfo& data = datasets[index(spec_.dataset)];
    if (data.arrivals && data.arrivals->has(step)) {
        return arrived(*data.arrivals, step, most_groups);
    }
    const std::vector<SampleInfo>& infos = data.train;
    std::vector<std::int32_t> positions = samples(step);
    const auto group_samples = static_cast<std::size_t>(plan_.group_samples);
    positions.resize(std::min(positions.size() / group_samples, most_groups) * group_samples);
    PendingBatch pending{adapter_, step, {}, plan_.group_samples};
    if (spec_.loss.is_contrastive()) {
        pending.group_samples = static_cast<std::int32_t>(positions.size());
    }
    for (const std::int32_t position : positions) {
        const SampleInfo& info = infos[static_cast<std::size_t>(position)];
        pending.samples.push_back({position, info.tokens, info.targets, info.undesirable});
    }
    return pending;
}

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
