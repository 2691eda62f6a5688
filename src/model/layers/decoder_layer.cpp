#include "model/layers/decoder_layer.h"

namespace loratrain {

DecoderLayer::DecoderLayer(const ReplicaView& view, const StagePlan& stage, const AdapterBank& bank,
                           const Workspace& workspace, Backend& backend, const StageLanes& lanes)
    : linear_(view, bank, workspace, backend, lanes),
      tools_{view, bank, workspace, backend, lanes, linear_},
      sublayers_(stage, tools_) {}

void DecoderLayer::pack(std::span<const Computed> layers) {
    packed_.clear();
    for (const Computed& of : layers) {
        for (int g = 0; g < linear_group_count; ++g) {
            packed_.push_back({of.weights.groups[static_cast<std::size_t>(g)],
                               static_cast<LinearGroup>(g), of.layer, of.rows});
        }
    }
    linear_.pack_all(packed_);
}

Branch DecoderLayer::around_mixer(const LayerSite& at, const TensorView& gradient) const {
    const LayerActivations& saved = at.saved;
    return {tools_,
            {saved.x, saved.x2, saved.mixer_made, at.weights.tensor(LayerTensor::norm_before_mixer),
             at.weights.tensor(LayerTensor::norm_after_mixer)},
            gradient};
}

Branch DecoderLayer::around_mlp(const LayerSite& at, const TensorView& y,
                                const TensorView& gradient) const {
    return {tools_,
            {at.saved.x2, y, at.saved.mlp_made, at.weights.tensor(LayerTensor::norm_before_mlp),
             at.weights.tensor(LayerTensor::norm_after_mlp)},
            gradient};
}

void DecoderLayer::forward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                           const LayerActivations& saved, const TensorView& y) {
    const LayerSite at{layer, weights, rows, saved, texts_};
    sublayers_.mixer(layer).forward(at, around_mixer(at));
    sublayers_.mlp(layer).forward(at, around_mlp(at, y));
}

void DecoderLayer::recompute(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                             const LayerActivations& saved) {
    forward(layer, weights, rows, saved, {});
}

void DecoderLayer::backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                            const LayerActivations& saved, const TensorView& gradient,
                            bool need_dx) {
    const LayerSite at{layer, weights, rows, saved, texts_};
    sublayers_.mlp(layer).backward(at, around_mlp(at, {}, gradient), true);
    sublayers_.mixer(layer).backward(at, around_mixer(at, gradient), need_dx);
}

}  // namespace loratrain
