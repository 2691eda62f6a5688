#include "plan/pack/sample_order.h"

#include <numeric>
#include <utility>

#include "base/rng.h"
#include "base/text.h"

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

namespace {

/// What an epoch has of a file beyond whole passes over it.
void append_rest(std::uint64_t seed, const std::string& name, std::int64_t begin,
                 std::int64_t count, std::int64_t of, std::int64_t first, bool shuffle,
                 std::vector<std::int32_t>& order) {
    std::int64_t pass = -1;
    std::vector<std::int32_t> permutation;
    for (std::int64_t place = begin; place < begin + count; ++place) {
        if (place / of != pass) {
            pass = place / of;
            permutation = epoch_order(seed, name, static_cast<std::int32_t>(pass), of, shuffle);
        }
        const auto next = permutation[static_cast<std::size_t>(place % of)];
        order.push_back(static_cast<std::int32_t>(first) + next);
    }
}

}  // namespace

std::vector<std::int32_t> mixed_order(std::uint64_t seed, std::string_view dataset,
                                      std::int32_t epoch, std::span<const FileShare> files,
                                      bool shuffle) {
    std::vector<std::int32_t> mixed;
    std::int64_t first = 0;
    for (std::size_t f = 0; f < files.size(); ++f) {
        const auto [samples, taken] = files[f];
        if (samples == 0) continue;
        for (std::int64_t i = 0; i < taken / samples * samples; ++i) {
            mixed.push_back(static_cast<std::int32_t>(first + i % samples));
        }
        const std::int64_t rest = taken % samples;
        append_rest(seed, cat(dataset, "/", f), epoch * rest, rest, samples, first, shuffle, mixed);
        first += samples;
    }
    std::vector<std::int32_t> order = epoch_order(seed, dataset, epoch, std::ssize(mixed), shuffle);
    for (std::int32_t& place : order) place = mixed[static_cast<std::size_t>(place)];
    return order;
}

SampleOrder SampleOrders::get(std::uint64_t seed, DatasetId id, const DatasetJob& dataset,
                              std::int32_t epoch, const AdapterPlan& plan) {
    const std::tuple key(seed, id, epoch, plan.epoch_samples() / plan.group_samples);
    if (const auto known = held_.find(key); known != held_.end()) {
        if (SampleOrder order = known->second.lock()) return order;
    }
    std::erase_if(held_, [](const auto& entry) { return entry.second.expired(); });
    std::vector<FileShare> files = plan.files;
    if (files.empty()) files.push_back({plan.samples, plan.samples});
    for (FileShare& file : files) {
        file.samples /= plan.group_samples;
        file.taken /= plan.group_samples;
    }
    auto order = std::make_shared<SampleOrder::element_type>(
        mixed_order(seed, dataset.name, epoch, files, dataset.shuffle));
    held_[key] = order;
    return order;
}

}  // namespace loratrain
