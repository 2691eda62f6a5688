#pragma once

#include <cstddef>
#include <vector>

#include "plan/plan.h"

namespace loratrain::test {

/// Where a stage ends: before `layer`, but for the adapters of `below`, computed in it as well.
struct Cut {
    std::int32_t layer = 0;
    AdapterSpan below = {0, 0};
};

/// Adapters up to and from a number: [0, n) and [n, ...).
inline AdapterSpan up_to(std::int32_t number) {
    return {0, number};
}
inline AdapterSpan from(std::int32_t number) {
    return {number};
}

/// One stage more than there are cuts.
inline std::vector<StagePlan> cut_layers(std::int32_t layers, const std::vector<Cut>& cuts) {
    std::vector<StagePlan> stages(cuts.size() + 1);
    for (std::size_t s = 0; s < stages.size(); ++s) {
        const Cut begin = s == 0 ? Cut{} : cuts[s - 1];
        const Cut end = s == cuts.size() ? Cut{layers} : cuts[s];
        const bool shares_last = end.below.end > 0;
        StagePlan& stage = stages[s];
        stage.rank = static_cast<std::int32_t>(s);
        stage.first_layer = begin.layer;
        stage.layer_count = end.layer - begin.layer + (shares_last ? 1 : 0);
        stage.has_embedding = s == 0;
        stage.has_head = s == cuts.size();
        if (shares_last) stage.last_layer_adapters = end.below;
        if (begin.below.end == 0) continue;
        stage.first_layer_adapters =
            begin.below.begin > 0 ? up_to(begin.below.begin) : from(begin.below.end);
    }
    return stages;
}

/// `count` stages, each of which shares a layer with the next one: the adapters below `number` are
/// computed in it before the cut or, at every second cut, after it.
inline std::vector<StagePlan> sharing_stages(std::int32_t layers, int count, std::int32_t number) {
    std::vector<Cut> cuts;
    for (std::int32_t s = 0; s + 1 < count; ++s) {
        cuts.push_back({2 * s + 1, s % 2 == 0 ? up_to(number) : from(number)});
    }
    return cut_layers(layers, cuts);
}

}  // namespace loratrain::test
