#include "model/row_norms.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace loratrain {

namespace {

struct LinearPlace {
    LinearGroup group{};
    std::int64_t first_row = 0;  ///< in the group's matrix
};

LinearPlace place_of(const ModelSpec& model, Linear linear) {
    for (int g = 0; g < linear_group_count; ++g) {
        const LinearGroupShape shape = group_shape(model, static_cast<LinearGroup>(g));
        std::int64_t row = 0;
        for (int i = 0; i < shape.count; ++i) {
            const Linear other = shape.linears[static_cast<std::size_t>(i)];
            if (other == linear) return {static_cast<LinearGroup>(g), row};
            row += linear_shape(model, other).out;
        }
    }
    return {};
}

}  // namespace

std::vector<float> row_norms(const RowNormsSite& site, LayerWeights& weights, Linear linear) {
    LORATRAIN_CHECK(!site.view.plan.fp8_linears, "weights are kept as codes alone");
    const ModelSpec& model = site.view.lane_model;
    const LinearPlace place = place_of(model, linear);
    const LinearShape shape = linear_shape(model, linear);
    GroupWeights& group = weights.groups[static_cast<std::size_t>(place.group)];
    const Scratch m =
        site.workspace.matrix_of(group.matrix.view, augmented_shape(site.view, place.group));
    if (group.matrix.view.residence == WeightResidence::staged) group.packed_width = -1;
    std::vector<float> norms(static_cast<std::size_t>(shape.out));
    const std::size_t bytes = norms.size() * sizeof(float);
    const Buffer squares = site.backend.allocate(aligned(bytes), "norms of weights");
    site.backend.dora_norms(
        {m->row_range(place.first_row, shape.out).col_range(0, shape.in), {}, squares.as<float>()});
    if (is_cut_by_columns(linear)) {
        site.lanes.all->all_reduce(matrix(squares.data(), DType::f32, 1, shape.out));
    }
    site.backend.download(norms.data(), squares.data(), bytes);
    std::transform(norms.begin(), norms.end(), norms.begin(),
                   [](float value) { return std::sqrt(value); });
    return norms;
}

}  // namespace loratrain
