#include "model/text_cache.h"

#include "base/error.h"

namespace loratrain {

TextCache::TextCache(const Job& job, const ReplicaView& view, const StagePlan& stage,
                     Backend& backend)
    : backend_(backend),
      room_(text_room(job, view)),
      memory_(backend.allocate(text_cache_bytes(job, view, stage), "texts")),
      layers_(static_cast<std::size_t>(stage.layer_count)) {
    char* at = memory_.as<char>();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        const LayerSpec& layer =
            view.lane_model.layer(stage.first_layer + static_cast<std::int64_t>(l));
        const SavedArrays arrays = cached_arrays(room_, view, layer, layers_[l]);
        arrays.place(at, room_.tokens);
        at += arrays.bytes();
    }
    device_first_ = reinterpret_cast<std::int32_t*>(at);
    at += aligned_array(room_.texts, sizeof(std::int32_t));
    chosen_ = reinterpret_cast<ChosenToken*>(at);
}

void TextCache::begin(std::span<const std::int64_t> rooms) {
    LORATRAIN_CHECK(std::ssize(rooms) <= room_.texts, rooms.size(), " texts in room for ",
                    room_.texts);
    first_.clear();
    std::int64_t row = 0;
    for (const std::int64_t room : rooms) {
        first_.push_back(static_cast<std::int32_t>(row));
        row += room;
    }
    LORATRAIN_CHECK(row <= room_.tokens, "texts of ", row, " tokens in room for ", room_.tokens);
    backend_.upload(device_first_, first_.data(), first_.size() * sizeof(std::int32_t));
}

void TextCache::expect(Rows rows, std::int64_t first) {
    rows_ = rows;
    forward_first_ = first;
}

std::int64_t TextCache::first_text(const PackedRows& rows, std::int64_t first_sample) const {
    const std::int64_t first = forward_first_ + first_sample;
    LORATRAIN_CHECK(first + rows.samples <= std::ssize(first_), "texts ", first, " to ",
                    first + rows.samples, " of ", first_.size());
    return first;
}

void TextCache::attend(std::int32_t layer, const Attention& op, std::int64_t first_sample) {
    const LayerCache& cache = layer_of(layer);
    const std::int64_t first = first_text(op.rows, first_sample);
    if (rows_ == Rows::next) {
        return backend_.cached_attention({op, cache.keys, cache.values, device_first_ + first});
    }
    for (std::int64_t text = 0; text < op.rows.samples; ++text) {
        const std::int64_t begin = op.rows.host_offsets[text];
        const std::int64_t count = op.rows.host_offsets[text + 1] - begin;
        const std::int64_t place = first_[static_cast<std::size_t>(first + text)];
        backend_.copy({cache.keys.row_range(place, count), op.k.row_range(begin, count)});
        backend_.copy({cache.values.row_range(place, count), op.v.row_range(begin, count)});
    }
    backend_.attention(op);
}

void TextCache::convolve(std::int32_t layer, const CausalConv& op, std::int64_t first_sample) {
    const std::int64_t kept = op.width - 1;
    const TensorView of_all = matrix(layer_of(layer).conv_rows, backend_.compute_dtype(),
                                     std::ssize(first_) * kept, op.x.cols);
    const std::int64_t first = first_text(op.rows, first_sample);
    backend_.cached_conv({op, of_all.row_range(first * kept, op.rows.samples * kept)});
}

void TextCache::run_rule(std::int32_t layer, const DeltaRule& op, std::int64_t first_sample) {
    const std::int64_t first = first_text(op.rows, first_sample);
    auto* states = static_cast<float*>(layer_of(layer).states);
    backend_.cached_delta_rule(
        {op, states + first * op.value_heads * op.key_dim() * op.value_dim()});
}

}  // namespace loratrain
