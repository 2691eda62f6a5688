#include "model/text_cache.h"

#include "base/error.h"

namespace loratrain {

TextCache::TextCache(const Job& job, const ReplicaView& view, const StagePlan& stage,
                     Backend& backend)
    : backend_(backend),
      texts_(cached_texts(job)),
      tokens_(cached_tokens(job, view)),
      memory_(backend.allocate(text_cache_bytes(job, view, stage), "texts")),
      layers_(static_cast<std::size_t>(stage.layer_count)) {
    char* at = memory_.as<char>();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        const LayerSpec& layer =
            view.lane_model.layer(stage.first_layer + static_cast<std::int64_t>(l));
        const SavedArrays arrays = cached_arrays(job, view, layer, layers_[l]);
        arrays.place(at, tokens_);
        at += arrays.bytes();
    }
    device_first_ = reinterpret_cast<std::int32_t*>(at);
}

void TextCache::begin(std::span<const std::int64_t> rooms) {
    LORATRAIN_CHECK(std::ssize(rooms) <= texts_, rooms.size(), " texts in room for ", texts_);
    first_.clear();
    std::int64_t row = 0;
    for (const std::int64_t room : rooms) {
        first_.push_back(static_cast<std::int32_t>(row));
        row += room;
    }
    LORATRAIN_CHECK(row <= tokens_, "texts of ", row, " tokens in room for ", tokens_);
    backend_.upload(device_first_, first_.data(), first_.size() * sizeof(std::int32_t));
}

const LayerCache& TextCache::layer_of(std::int32_t layer, const PackedRows& rows) const {
    LORATRAIN_CHECK(rows.samples <= std::ssize(first_), rows.samples, " samples of ", first_.size(),
                    " texts");
    return layers_[static_cast<std::size_t>(layer)];
}

void TextCache::attend(std::int32_t layer, const Attention& op, Rows rows,
                       std::int64_t first_text) {
    const LayerCache& cache = layer_of(layer, op.rows);
    LORATRAIN_CHECK(first_text + op.rows.samples <= std::ssize(first_), "text ", first_text);
    if (rows == Rows::next) {
        return backend_.cached_attention(
            {op, cache.keys, cache.values, device_first_ + first_text});
    }
    for (std::int64_t text = 0; text < op.rows.samples; ++text) {
        const std::int64_t begin = op.rows.host_offsets[text];
        const std::int64_t count = op.rows.host_offsets[text + 1] - begin;
        const std::int64_t place = first_[static_cast<std::size_t>(first_text + text)];
        backend_.copy({cache.keys.row_range(place, count), op.k.row_range(begin, count)});
        backend_.copy({cache.values.row_range(place, count), op.v.row_range(begin, count)});
    }
    backend_.attention(op);
}

void TextCache::convolve(std::int32_t layer, const CausalConv& op) {
    const std::int64_t rows = op.rows.samples * (op.width - 1);
    backend_.cached_conv({op, matrix(layer_of(layer, op.rows).conv_rows, backend_.compute_dtype(),
                                     rows, op.x.cols)});
}

void TextCache::run_rule(std::int32_t layer, const DeltaRule& op) {
    backend_.cached_delta_rule({op, static_cast<float*>(layer_of(layer, op.rows).states)});
}

}  // namespace loratrain
