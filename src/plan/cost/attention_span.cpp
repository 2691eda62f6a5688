#include "plan/cost/attention_span.h"

#include <algorithm>
#include <map>

namespace loratrain {

AttentionSpan::AttentionSpan(const ModelSpec& model) {
    std::map<std::int64_t, std::int64_t> counts;
    for_layers(model, 0, model.layers, [&](const LayerSpec& layer, std::int64_t number) {
        const AttentionSpec* attention = layer.if_attention();
        if (attention != nullptr) counts[attention->sliding_window] += number;
    });
    if (counts.size() == 1 && counts.begin()->second == model.layers && counts.count(0) > 0) return;
    for (const auto& [sliding_window, count] : counts) {
        layers_.push_back(
            {sliding_window, static_cast<double>(count) / static_cast<double>(model.layers)});
    }
}

double AttentionSpan::squares(std::int64_t tokens) const {
    const auto whole = static_cast<double>(tokens);
    if (layers_.empty()) return whole * whole;
    double sum = 0.0;
    for (const auto& [sliding_window, share] : layers_) {
        const double seen =
            sliding_window > 0 ? static_cast<double>(std::min(sliding_window, tokens)) : whole;
        sum += share * seen * (2.0 * whole - seen);
    }
    return sum;
}

}  // namespace loratrain
