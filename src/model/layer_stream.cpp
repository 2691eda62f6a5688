#include "model/layer_stream.h"

#include <algorithm>
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

std::vector<HostCopy> owned_layer_copies(const StreamedLayer& layout, char* buffer, char* held) {
    std::vector<HostCopy> copies;
    for (const StreamedGroup& group : layout.groups) {
        copies.push_back({buffer + group.in_buffer, group.pitch, held + group.in_buffer,
                          group.row_bytes, group.rows, group.pitch});
    }
    return copies;
}

LayerStream::LayerStream(const ReplicaView& view, const StagePlan& stage, Backend& backend,
                         SharedLayers* shared_layers)
    : layout_(streamed_layer(view)),
      shared_layers_(shared_layers),
      link_(backend.make_host_copies(stream_buffers(stage))),
      order_(stream_buffers(stage)),
      anew_(static_cast<std::size_t>(stage.layer_count)) {
    for (std::int32_t b = 0; b < stream_buffers(stage); ++b) {
        buffers_.push_back(backend.allocate(layout_.buffer_bytes, "buffer of streamed layers"));
    }
    std::int32_t turn = 0;
    for (std::int32_t l = 0; l < stage.layer_count; ++l) {
        const bool streamed = is_streamed(stage, l);
        place_of_.push_back(streamed ? turn++ : -1);
        if (!streamed || shared_layers_ != nullptr) continue;
        const HostPages& pages = host_.emplace_back(host_layer_bytes(layout_));
        link_->pin(pages.data(), pages.bytes());
    }
    if (shared_layers_ == nullptr) return;
    for (const std::span<char> pages : shared_layers_->host_memory())
        link_->pin(pages.data(), pages.size());
}

bool LayerStream::fills(std::int32_t layer) const {
    return shared_layers_ == nullptr ||
           (!shared_layers_->owned_by_ranks() && shared_layers_->fills(layer));
}

char* LayerStream::host_layer(std::int32_t layer) const {
    if (shared_layers_ != nullptr) return shared_layers_->weights(layer);
    return host_[static_cast<std::size_t>(place_of_[static_cast<std::size_t>(layer)])].data();
}

std::vector<HostCopy> LayerStream::copies(std::int32_t layer, char* buffer) const {
    const std::int32_t place = place_of_[static_cast<std::size_t>(layer)];
    LORATRAIN_CHECK(place >= 0, "layer ", layer, " of the stage does not stream");
    if (shared_layers_ == nullptr || !shared_layers_->owned_by_ranks()) {
        return layer_copies(layout_, buffer, host_layer(layer));
    }
    return owned_layer_copies(layout_, buffer, shared_layers_->weights(layer));
}

double LayerStream::measured_load(StreamClock& clock) {
    constexpr int repeats = 5;
    const auto found = std::find_if(place_of_.begin(), place_of_.end(),
                                    [](std::int32_t place) { return place >= 0; });
    const auto layer = static_cast<std::int32_t>(found - place_of_.begin());
    const auto of_layer = copies(layer, assembly());
    order_.forget();
    std::vector<double> seconds;
    for (int i = 0; i < repeats; ++i) {
        clock.mark();
        link_->load(0, of_layer);
        link_->await(0);
        clock.mark();
        seconds.push_back(clock.read().back());
    }
    std::nth_element(seconds.begin(), seconds.begin() + repeats / 2, seconds.end());
    return seconds[repeats / 2];
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
        char* buffer = buffers_[static_cast<std::size_t>(load->buffer)].as<char>();
        link_->load(load->buffer, copies(load->layer, buffer), recorded_.clock());
        anew_[static_cast<std::size_t>(load->layer)] = true;
        recorded_.add(load->layer, false);
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
