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
    const std::int32_t epoch = step / plan_.steps_per_epoch;
    if (epoch != epoch_) {
        order_ = orders_.get(spec_.seed, spec_.dataset, dataset_, epoch, plan_.samples);
        epoch_ = epoch;
    }
    const std::int64_t size = spec_.global_batch_size;
    const std::int64_t first = (step % plan_.steps_per_epoch) * size;
    const std::int64_t last = std::min(first + size, plan_.samples);
    return {order_->begin() + first, order_->begin() + last};
}

PendingBatch BatchSource::batch(std::int32_t step, std::span<const DatasetInfo> datasets,
                                std::size_t most) {
    const std::vector<SampleInfo>& infos = datasets[index(spec_.dataset)].train;
    std::vector<std::int32_t> positions = samples(step);
    positions.resize(std::min(positions.size(), most));
    PendingBatch pending{adapter_, step, {}};
    for (const std::int32_t position : positions) {
        const SampleInfo& info = infos[static_cast<std::size_t>(position)];
        pending.samples.push_back({position, info.tokens, info.targets});
    }
    return pending;
}

}  // namespace loratrain
