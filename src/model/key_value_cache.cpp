#include "model/key_value_cache.h"

#include "base/error.h"

namespace loratrain {

KeyValueCache::KeyValueCache(const Job& job, const ReplicaView& view, const StagePlan& stage,
                             Backend& backend)
    : backend_(backend),
      tokens_(cached_tokens(job, view)),
      columns_(view.lane_model.attention().kv_size()),
      first_offset_(aligned(static_cast<std::uint64_t>(2 * stage.layer_count * tokens_ * columns_) *
                            size_of(backend.compute_dtype()))),
      memory_(backend.allocate(key_value_cache_bytes(job, view, stage), "keys and values")) {}

TensorView KeyValueCache::part(std::int32_t layer, int part) const {
    const DType type = backend_.compute_dtype();
    const auto bytes = static_cast<std::int64_t>(size_of(type)) * tokens_ * columns_;
    return matrix(memory_.as<char>() + (2 * layer + part) * bytes, type, tokens_, columns_);
}

void KeyValueCache::begin(std::span<const std::int64_t> rooms) {
    LORATRAIN_CHECK(std::ssize(rooms) <= texts_at_once, rooms.size(), " texts");
    first_.clear();
    std::int64_t row = 0;
    for (const std::int64_t room : rooms) {
        first_.push_back(static_cast<std::int32_t>(row));
        row += room;
    }
    LORATRAIN_CHECK(row <= tokens_, "keys of ", row, " tokens in room for ", tokens_);
    backend_.upload(memory_.as<char>() + first_offset_, first_.data(),
                    first_.size() * sizeof(std::int32_t));
}

void KeyValueCache::attend(std::int32_t layer, const Attention& op, Rows rows) {
    LORATRAIN_CHECK(op.rows.samples == std::ssize(first_), op.rows.samples, " samples of ",
                    first_.size(), " texts");
    const TensorView keys = part(layer, 0);
    const TensorView values = part(layer, 1);
    if (rows == Rows::next) {
        const auto* first =
            reinterpret_cast<const std::int32_t*>(memory_.as<char>() + first_offset_);
        return backend_.cached_attention({op, keys, values, first});
    }
    for (std::int64_t text = 0; text < op.rows.samples; ++text) {
        const std::int64_t begin = op.rows.host_offsets[text];
        const std::int64_t count = op.rows.host_offsets[text + 1] - begin;
        const std::int64_t place = first_[static_cast<std::size_t>(text)];
        backend_.copy({keys.row_range(place, count), op.k.row_range(begin, count)});
        backend_.copy({values.row_range(place, count), op.v.row_range(begin, count)});
    }
    backend_.attention(op);
}

}  // namespace loratrain
