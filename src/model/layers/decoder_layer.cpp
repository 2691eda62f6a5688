#include "model/layers/decoder_layer.h"

#include <array>
#include <span>
#include <variant>

#include "model/layers/attention_sublayer.h"
#include "model/layers/delta_net_sublayer.h"
#include "model/layers/dense_sublayer.h"
#include "model/layers/expert_sublayer.h"
#include "model/layers/latent_sublayer.h"

namespace loratrain {

namespace {

/// Makes the sublayer of a kind; the tables are in the order of Mixer, then attention with a
/// latent, and of Mlp.
using Make = std::unique_ptr<Sublayer> (*)(const LayerTools& tools);

template <class Kind>
std::unique_ptr<Sublayer> make_kind(const LayerTools& tools) {
    return std::make_unique<Kind>(tools);
}

constexpr std::array<Make, 3> mixer_kinds{make_kind<AttentionSublayer>, make_kind<DeltaNetSublayer>,
                                          make_kind<LatentSublayer>};
constexpr std::array<Make, 2> mlp_kinds{make_kind<DenseSublayer>, make_kind<ExpertSublayer>};
static_assert(mixer_kinds.size() == std::variant_size_v<Mixer> + 1);
static_assert(mlp_kinds.size() == std::variant_size_v<Mlp>);

std::size_t mixer_kind(const LayerSpec& layer) {
    const AttentionSpec* attention = layer.if_attention();
    const bool latent = attention != nullptr && attention->latent;
    return latent ? mixer_kinds.size() - 1 : layer.mixer.index();
}

}  // namespace

SublayersOfStage::SublayersOfStage(const StagePlan& stage, const LayerTools& tools) {
    std::array<Sublayer*, mixer_kinds.size()> mixers{};
    std::array<Sublayer*, mlp_kinds.size()> mlps{};
    const auto choose = [&](std::size_t kind, Make make, std::span<Sublayer*> made) {
        if (made[kind] == nullptr) made[kind] = kinds_.emplace_back(make(tools)).get();
        return made[kind];
    };
    for (std::int64_t l = stage.first_layer; l < stage.first_layer + stage.layer_count; ++l) {
        const LayerSpec& layer = tools.model().layer(l);
        const std::size_t mixer = mixer_kind(layer);
        const std::size_t mlp = layer.mlp.index();
        layers_.push_back(
            {choose(mixer, mixer_kinds[mixer], mixers), choose(mlp, mlp_kinds[mlp], mlps)});
    }
}

DecoderLayer::DecoderLayer(const ReplicaView& view, const StagePlan& stage, const AdapterBank& bank,
                           const Workspace& workspace, Backend& backend, const StageLanes& lanes)
    : linear_(view, bank, workspace, backend, lanes),
      tools_{view, bank, workspace, backend, lanes, linear_},
      sublayers_(stage, tools_) {}

void DecoderLayer::pack(std::span<const Computed> layers) {
    packed_.clear();
    for (const Computed& of : layers) {
        for (const LinearGroup group : linear_groups) {
            packed_.push_back(
                {of.weights.groups[static_cast<std::size_t>(group)], group, of.layer, of.rows});
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
