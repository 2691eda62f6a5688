#include "model/layers/sublayer_kinds.h"

#include <array>
#include <span>

#include "base/error.h"
#include "model/layers/attention_sublayer.h"
#include "model/layers/dense_sublayer.h"
#include "model/layers/expert_sublayer.h"

namespace loratrain {

namespace {

/// A kind: whether a layer of the model has it, and how it is made.
struct KindOfSublayer {
    bool (*is_of)(const ModelSpec& model, std::int64_t layer);
    std::unique_ptr<Sublayer> (*make)(const LayerTools& tools);
};

template <class Kind>
std::unique_ptr<Sublayer> make_kind(const LayerTools& tools) {
    return std::make_unique<Kind>(tools);
}

constexpr std::array mixer_kinds{
    KindOfSublayer{[](const ModelSpec&, std::int64_t) { return true; },
                   make_kind<AttentionSublayer>},
};
constexpr std::array mlp_kinds{
    KindOfSublayer{[](const ModelSpec& model, std::int64_t) { return !model.has_experts(); },
                   make_kind<DenseSublayer>},
    KindOfSublayer{[](const ModelSpec& model, std::int64_t) { return model.has_experts(); },
                   make_kind<ExpertSublayer>},
};

}  // namespace

SublayersOfStage::SublayersOfStage(const StagePlan& stage, const LayerTools& tools) {
    std::array<Sublayer*, mixer_kinds.size()> mixers{};
    std::array<Sublayer*, mlp_kinds.size()> mlps{};
    const auto choose = [&](std::int64_t layer, std::span<const KindOfSublayer> kinds,
                            std::span<Sublayer*> made) {
        for (std::size_t i = 0; i < kinds.size(); ++i) {
            if (!kinds[i].is_of(tools.model(), layer)) continue;
            if (made[i] == nullptr) made[i] = kinds_.emplace_back(kinds[i].make(tools)).get();
            return made[i];
        }
        throw Error(cat("layer ", layer, " is of no kind"));
    };
    for (std::int64_t l = stage.first_layer; l < stage.first_layer + stage.layer_count; ++l) {
        layers_.push_back({choose(l, mixer_kinds, mixers), choose(l, mlp_kinds, mlps)});
    }
}

}  // namespace loratrain
