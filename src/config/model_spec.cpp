#include "config/model_spec.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace loratrain {

double AttentionSpec::scale() const {
    const double usual = 1.0 / std::sqrt(static_cast<double>(head_dim));
    const bool whole = rope && rope->rotated == 1.0;
    const double length = whole ? rope->attention_factor : 1.0;
    return (multiplier > 0.0 ? multiplier : usual) * length * length;
}

std::int64_t rotary_dim(std::int64_t head_dim, const RopeSpec& rope) {
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * rope.rotated);
}

std::int64_t frequency_count(std::int64_t head_dim, const RopeSpec& rope) {
    const std::int64_t pairs = rotary_dim(head_dim, rope) / 2;
    return rope.type == RopeType::longrope ? 2 * pairs : pairs;
}

void ModelSpec::set_layers(const std::vector<LayerSpec>& each) {
    descriptions.clear();
    description_of.clear();
    layers = std::ssize(each);
    for (const LayerSpec& layer : each) {
        const auto same = std::find(descriptions.begin(), descriptions.end(), layer);
        description_of.push_back(static_cast<std::uint16_t>(same - descriptions.begin()));
        if (same == descriptions.end()) descriptions.push_back(layer);
    }
    if (descriptions.size() < 2) description_of.clear();
    if (descriptions.empty()) descriptions.emplace_back();
}

const char* description_problem(const ModelSpec& spec) {
    const std::size_t count = spec.descriptions.size();
    if (count == 0) return "a model has no description of a layer";
    if (spec.description_of.empty()) return nullptr;
    if (std::ssize(spec.description_of) != spec.layers) return "descriptions are not of each layer";
    const bool known = std::all_of(spec.description_of.begin(), spec.description_of.end(),
                                   [&](std::uint16_t of) { return of < count; });
    return known ? nullptr : "a layer has no description";
}

std::vector<const RopeSpec*> ropes_of(const ModelSpec& spec) {
    std::vector<const RopeSpec*> ropes;
    for (const LayerSpec& layer : spec.descriptions) {
        const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
        if (attention == nullptr || !attention->rope) continue;
        const bool known = std::any_of(ropes.begin(), ropes.end(), [&](const RopeSpec* rope) {
            return *rope == *attention->rope;
        });
        if (!known) ropes.push_back(&*attention->rope);
    }
    return ropes;
}

std::int32_t short_length(const ModelSpec& spec) {
    std::int64_t most = std::numeric_limits<std::int32_t>::max();
    for (const RopeSpec* rope : ropes_of(spec)) {
        if (rope->type == RopeType::longrope) most = std::min(most, rope->original_max_position);
    }
    return static_cast<std::int32_t>(most);
}

bool has_experts(const ModelSpec& spec) {
    return spec.experts() != nullptr;
}

}  // namespace loratrain
