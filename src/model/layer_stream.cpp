#include "model/layer_stream.h"

#include <utility>

#include "base/error.h"

namespace loratrain {

std::vector<HostCopy> layer_copies(const StreamedLayer& layout, char* buffer, char* host) {
    std::vector<HostCopy> copies;
    for (const StreamedGroup& group : layout.groups) {
        copies.push_back({buffer + group.in_buffer, group.pitch, host + group.in_host,
                          group.row_bytes, group.rows});
    }
    return copies;
}

LayerStream::LayerStream(const ReplicaView& view, const StagePlan& stage, Backend& backend)
    : layout_(streamed_layer(view)),
      link_(backend.make_host_copies(stream_buffers(stage))),
      order_(stream_buffers(stage)),
      anew_(static_cast<std::size_t>(stage.layer_count)) {
    for (std::int32_t b = 0; b < stream_buffers(stage); ++b) {
        buffers_.push_back(backend.allocate(layout_.buffer_bytes, "buffer of streamed layers"));
    }
    for (std::int32_t l = 0; l < stage.layer_count; ++l) {
        const bool streamed = is_streamed(stage, l);
        place_of_.push_back(streamed ? static_cast<std::int32_t>(host_.size()) : -1);
        if (!streamed) continue;
        const HostPages& pages = host_.emplace_back(host_block_bytes(layout_));
        link_->pin(pages.data(), pages.bytes());
    }
}

std::vector<HostCopy> LayerStream::copies(std::int32_t layer, char* buffer) const {
    const std::int32_t place = place_of_[static_cast<std::size_t>(layer)];
    LORATRAIN_CHECK(place >= 0, "layer ", layer, " of the stage does not stream");
    return layer_copies(layout_, buffer, host_[static_cast<std::size_t>(place)].data());
}

void LayerStream::keep(std::int32_t layer) {
    link_->save(copies(layer, assembly()));
}

void LayerStream::expect(std::vector<std::int32_t> layers) {
    order_.expect(std::move(layers));
    load_what_can();
}

void LayerStream::load_what_can() {
    while (const auto load = order_.next_load()) {
        link_->load(
            load->buffer,
            copies(load->layer, buffers_[static_cast<std::size_t>(load->buffer)].as<char>()));
        anew_[static_cast<std::size_t>(load->layer)] = true;
    }
}

LayerStream::Place LayerStream::use(std::int32_t layer) {
    if (!order_.expects(layer)) expect({layer});
    const std::int32_t buffer = order_.use(layer);
    link_->await(buffer);
    const bool anew = anew_[static_cast<std::size_t>(layer)];
    anew_[static_cast<std::size_t>(layer)] = false;
    return {buffers_[static_cast<std::size_t>(buffer)].as<char>(), anew};
}

void LayerStream::done() {
    order_.done();
    load_what_can();
}

}  // namespace loratrain
