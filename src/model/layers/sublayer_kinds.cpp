#include "model/layers/sublayer_kinds.h"

#include <array>
#include <span>
#include <variant>

#include "model/layers/attention_sublayer.h"
#include "model/layers/delta_net_sublayer.h"
#include "model/layers/dense_sublayer.h"
#include "model/layers/expert_sublayer.h"

namespace loratrain {

namespace {

/// Makes the sublayer of a kind; the tables are in the order of Mixer and Mlp.
using Make = std::unique_ptr<Sublayer> (*)(const LayerTools& tools);

template <class Kind>
std::unique_ptr<Sublayer> make_kind(const LayerTools& tools) {
    return std::make_unique<Kind>(tools);
}

constexpr std::array<Make, 2> mixer_kinds{make_kind<AttentionSublayer>,
                                          make_kind<DeltaNetSublayer>};
constexpr std::array<Make, 2> mlp_kinds{make_kind<DenseSublayer>, make_kind<ExpertSublayer>};
static_assert(mixer_kinds.size() == std::variant_size_v<Mixer>);
static_assert(mlp_kinds.size() == std::variant_size_v<Mlp>);

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
        const std::size_t mixer = layer.mixer.index();
        const std::size_t mlp = layer.mlp.index();
        layers_.push_back(
            {choose(mixer, mixer_kinds[mixer], mixers), choose(mlp, mlp_kinds[mlp], mlps)});
    }
}

}  // namespace loratrain
