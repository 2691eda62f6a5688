#include "model/activation_offload.h"

#include "base/error.h"

namespace loratrain {

ActivationOffload::ActivationOffload(const ReplicaView& view, std::size_t stage_index,
                                     const Workspace& workspace, Backend& backend)
    : view_(view),
      workspace_(workspace),
      first_layer_(view.replica.stages[stage_index].first_layer),
      keeping_(layer_keeping(view, view.replica.stages[stage_index])),
      copied_(copied_layers(view, stage_index)),
      buffers_(offload_buffers(view, view.replica.stages[stage_index])),
      holds_(static_cast<std::size_t>(buffers_)),
      link_(backend.make_host_copies(buffers_)) {
    const std::int32_t blocks = slot_count(view, stage_index) * copied_;
    for (std::int32_t i = 0; i < blocks; ++i) {
        const HostPages& pages = host_.emplace_back(offloaded_layer_bytes(view));
        link_->pin(pages.data(), pages.bytes());
    }
    rows_.resize(host_.size());
}

std::int32_t ActivationOffload::place_of(std::int32_t layer) const {
    const LayerKeeping& keeping = keeping_[static_cast<std::size_t>(layer)];
    return keeping.how == Keeping::offloaded ? keeping.place : -1;
}

std::int32_t ActivationOffload::buffer_of(std::int32_t place) const {
    return place % buffers_;
}

std::int32_t ActivationOffload::layer_at(std::int32_t place) const {
    std::int32_t layer = 0;
    while (place_of(layer) != place) ++layer;
    return layer;
}

std::size_t ActivationOffload::block_of(const Content& of) const {
    return static_cast<std::size_t>(of.slot) * static_cast<std::size_t>(copied_) +
           static_cast<std::size_t>(of.place);
}

std::int64_t& ActivationOffload::copied_rows(const Content& of) {
    return rows_[block_of(of)];
}

std::vector<HostCopy> ActivationOffload::copies(const Content& of, std::int64_t rows) const {
    char* device = static_cast<char*>(workspace_.offload(buffer_of(of.place)));
    char* host = host_[block_of(of)].data();
    std::vector<HostCopy> copies;
    const std::int64_t layer = first_layer_ + layer_at(of.place);
    for (const ActivationPart& part : activation_parts(view_, layer, rows)) {
        copies.push_back({device + part.offset, part.bytes, host + part.offset, part.bytes, 1});
    }
    return copies;
}

void ActivationOffload::begin_forward(std::int32_t slot, std::int32_t layer) {
    const std::int32_t place = place_of(layer);
    if (place < 0) return;
    link_->await(buffer_of(place));
    holds_[static_cast<std::size_t>(buffer_of(place))] = {slot, place};
    if (place < copied_) copied_rows({slot, place}) = 0;
}

void ActivationOffload::end_forward(std::int32_t layer, std::int64_t rows) {
    const std::int32_t place = place_of(layer);
    if (place < 0 || place >= copied_) return;
    const Content of = holds_[static_cast<std::size_t>(buffer_of(place))];
    link_->store(buffer_of(place), copies(of, rows), recorded_.clock());
    recorded_.add(layer, true);
    copied_rows(of) = rows;
}

void ActivationOffload::begin_backward(std::int32_t slot, const MicrobatchTables& tables) {
    slot_ = slot;
    to_use_.clear();
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(keeping_.size()); ++l) {
        if (place_of(l) >= 0 && tables.in_layer(l).tokens > 0) to_use_.push_back(place_of(l));
    }
    load_what_can();
}

void ActivationOffload::load_what_can() {
    std::vector<bool> is_taken(holds_.size());
    for (auto place = to_use_.rbegin(); place != to_use_.rend(); ++place) {
        const auto buffer = static_cast<std::size_t>(buffer_of(*place));
        if (is_taken[buffer]) return;
        is_taken[buffer] = true;
        const Content wanted{slot_, *place};
        if (holds_[buffer] == wanted) continue;
        LORATRAIN_CHECK(*place < copied_ && copied_rows(wanted) > 0, "layer ", *place,
                        ": its activations in the host's memory were lost");
        link_->load(buffer_of(*place), copies(wanted, copied_rows(wanted)), recorded_.clock());
        recorded_.add(layer_at(*place), false);
        holds_[buffer] = wanted;
    }
}

void ActivationOffload::use(std::int32_t layer) {
    const std::int32_t place = place_of(layer);
    if (place < 0) return;
    LORATRAIN_CHECK(!to_use_.empty() && to_use_.back() == place, "layer ", layer,
                    " is not the next one of backward");
    link_->await(buffer_of(place));
}

void ActivationOffload::done(std::int32_t layer) {
    if (place_of(layer) < 0) return;
    to_use_.pop_back();
    load_what_can();
}

}  // namespace loratrain
