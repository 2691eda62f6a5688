#include "plan/pack/sample_order.h"

#include <numeric>
#include <utility>

#include "base/rng.h"

namespace loratrain {

std::vector<std::int32_t> epoch_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::int64_t samples, bool shuffle) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(samples));
    std::iota(order.begin(), order.end(), 0);
    if (!shuffle) return order;
    const std::uint64_t key =
        mix_key(mix_key(seed, hash_name(dataset)), static_cast<std::uint64_t>(epoch));
    for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[uniform_int(key, i, i)]);
    }
    return order;
}

SampleOrder SampleOrders::get(std::uint64_t seed, DatasetId id, const DatasetJob& dataset,
                              std::int32_t epoch, std::int64_t samples) {
    const std::tuple key(seed, id, epoch, samples);
    if (const auto known = held_.find(key); known != held_.end()) {
        if (SampleOrder order = known->second.lock()) return order;
    }
    std::erase_if(held_, [](const auto& entry) { return entry.second.expired(); });
    auto order = std::make_shared<SampleOrder::element_type>(
        epoch_order(seed, dataset.name, epoch, samples, dataset.shuffle));
    held_[key] = order;
    return order;
}

}  // namespace loratrain
