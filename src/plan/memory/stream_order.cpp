#include "plan/memory/stream_order.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace loratrain {

StreamOrder::StreamOrder(std::int32_t buffers) : held_(static_cast<std::size_t>(buffers), -1) {
    LORATRAIN_CHECK(buffers > 0, "no buffer for layers that stream");
}

void StreamOrder::expect(std::vector<std::int32_t> layers) {
    LORATRAIN_CHECK(in_use_ < 0, "a layer that streams is in use");
    expected_ = std::move(layers);
    first_ = 0;
}

void StreamOrder::forget() {
    expect({});
    std::fill(held_.begin(), held_.end(), -1);
}

std::int32_t StreamOrder::buffer_of(std::int32_t layer) const {
    const auto found = std::find(held_.begin(), held_.end(), layer);
    return found == held_.end() ? -1 : static_cast<std::int32_t>(found - held_.begin());
}

bool StreamOrder::expects(std::int32_t layer) const {
    return first_ < expected_.size() && expected_[first_] == layer;
}

std::size_t StreamOrder::next_use(std::int32_t layer) const {
    if (layer < 0) return expected_.size() + 1;  // an empty buffer is the first to be taken
    const auto begin = expected_.begin() + static_cast<std::ptrdiff_t>(first_);
    return static_cast<std::size_t>(std::find(begin, expected_.end(), layer) - expected_.begin());
}

std::optional<StreamOrder::Load> StreamOrder::next_load() {
    std::size_t wanted = first_;
    while (wanted < expected_.size() && buffer_of(expected_[wanted]) >= 0) ++wanted;
    if (wanted == expected_.size()) return std::nullopt;
    std::int32_t last = -1;
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(held_.size()); ++b) {
        if (b == in_use_) continue;
        const auto use_in = [&](std::int32_t buffer) {
            return next_use(held_[static_cast<std::size_t>(buffer)]);
        };
        if (last < 0 || use_in(b) > use_in(last)) last = b;
    }
    if (last < 0 || next_use(held_[static_cast<std::size_t>(last)]) < wanted) return std::nullopt;
    held_[static_cast<std::size_t>(last)] = expected_[wanted];
    return Load{expected_[wanted], last};
}

std::int32_t StreamOrder::use(std::int32_t layer) {
    LORATRAIN_CHECK(expects(layer), "layer ", layer, " is used out of turn");
    in_use_ = buffer_of(layer);
    LORATRAIN_CHECK(in_use_ >= 0, "layer ", layer, " has not been loaded");
    return in_use_;
}

void StreamOrder::done() {
    LORATRAIN_CHECK(in_use_ >= 0, "no layer that streams is in use");
    in_use_ = -1;
    ++first_;
}

}  // namespace loratrain
