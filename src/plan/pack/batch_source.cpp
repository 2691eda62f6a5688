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

PendingBatch BatchSource::batch(std::int32_t step, std::span<const DatasetInfo> datasets,
                                std::size_t most_groups) {
    const std::vector<SampleInfo>& infos = datasets[index(spec_.dataset)].train;
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

}  // namespace loratrain
