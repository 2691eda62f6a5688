#include "plan/memory/residency.h"

#include <algorithm>
#include <utility>

#include "base/alignment.h"

namespace loratrain {

namespace {

constexpr std::uint64_t page_bytes = 4096;

StreamedGroup group_layout(const ReplicaView& view, LinearGroup group, std::uint64_t& bytes) {
    StreamedGroup layout;
    if (view.plan.fp8_linears) {
        const Fp8GroupLayout fp8 = fp8_group_layout(view, group);
        bytes = fp8.bytes;
        layout.rows = 1;
        layout.row_bytes = layout.pitch = fp8.b_pad;
        return layout;
    }
    bytes = stored_layout(view, group).bytes;
    layout.rows = 1;
    layout.row_bytes = layout.pitch = bytes;
    if (weights_are_staged(view.plan)) return layout;
    const LinearGroupShape shape = group_shape(view.lane_model, group);
    const WeightTraits& traits = traits_of(linear_format(view.plan));
    layout.rows = static_cast<std::uint64_t>(shape.out);
    layout.row_bytes = code_bytes(traits, shape.in);
    layout.pitch = code_bytes(traits, stored_shape(view, group).cols);
    return layout;
}

}  // namespace

std::int32_t resident_layers(const Job& job) {
    switch (job.model.residency.kind) {
        case Residency::Kind::automatic:
        case Residency::Kind::all:
            return all_layers;
        case Residency::Kind::stream:
            return 0;
        case Residency::Kind::shared:
            return job.model.residency.sharers > 1 ? 0 : all_layers;
        case Residency::Kind::some:
            return job.model.residency.layers;
    }
    return all_layers;
}

std::vector<StagePlan> with_residency(std::vector<StagePlan> stages, const Job& job) {
    const Residency& residency = job.model.residency;
    const bool shared = residency.kind == Residency::Kind::shared && residency.sharers > 1;
    for (StagePlan& stage : stages) {
        stage.owners.clear();
        stage.resident_layers =
            shared ? ceil_div(stage.layer_count, residency.sharers) : resident_layers(job);
    }
    return stages;
}

bool may_stream(const ReplicaPlan& replica) {
    return std::any_of(replica.stages.begin(), replica.stages.end(),
                       [](const StagePlan& stage) { return stage.resident_layers != all_layers; });
}

std::int32_t streamed_layers(const StagePlan& stage) {
    return std::max(0, stage.layer_count - std::min(stage.resident_layers, stage.layer_count));
}

std::int32_t owned_layers(const StagePlan& stage) {
    std::int32_t held = 0;
    for (std::int32_t l = 0; l < stage.layer_count; ++l) held += is_streamed(stage, l) ? 0 : 1;
    return held;
}

bool is_streamed(const StagePlan& stage, std::int32_t layer) {
    if (!stage.owners.empty()) {
        const auto owner = static_cast<std::size_t>(layer) % stage.owners.size();
        return stage.owners[owner] != stage.rank;
    }
    const std::int64_t streamed = streamed_layers(stage);
    const auto before = [&](std::int64_t end) { return end * streamed / stage.layer_count; };
    return streamed > 0 && before(layer + 1) > before(layer);
}

std::int32_t stream_buffers(const StagePlan& stage) {
    return std::min(streamed_layers(stage), most_stream_buffers);
}

StreamedLayer streamed_layer(const ReplicaView& view) {
    StreamedLayer layer;
    for (std::size_t g = 0; g < layer.groups.size(); ++g) {
        std::uint64_t bytes = 0;
        StreamedGroup& group = layer.groups[g];
        group = group_layout(view, static_cast<LinearGroup>(g), bytes);
        group.in_buffer = layer.buffer_bytes;
        group.in_host = layer.host_bytes;
        layer.buffer_bytes += aligned(bytes);
        layer.host_bytes += aligned(group.rows * group.row_bytes);
    }
    return layer;
}

std::uint64_t host_layer_bytes(const StreamedLayer& layer) {
    return round_up(layer.host_bytes, page_bytes);
}

}  // namespace loratrain
