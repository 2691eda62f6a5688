#include "adapter/projected_factors.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/arithmetic.h"
#include "base/error.h"
#include "io/adapters/exported_adapter.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

/// Rows and columns of a matrix [.., width].
struct Corner {
    Slices rows;
    Slice columns;
};

void append(std::vector<float>& to, const NamedTensor& tensor, const Corner& corner) {
    const std::int64_t width = tensor.shape[1];
    corner.rows.for_each_piece(1, [&](std::int64_t row, std::int64_t, std::int64_t) {
        const auto begin = tensor.values.begin() + row * width + corner.columns.first;
        to.insert(to.end(), begin, begin + corner.columns.count);
    });
}

}  // namespace

ProjectedFactors::ProjectedFactors(const AdapterJob& adapter, const ModelSpec& model,
                                   const TensorLane& lane, Backend& backend) {
    const std::vector<NamedTensor> projections = vera_projections(adapter, model);
    const Slice rank{0, adapter.r};
    std::vector<float> values;
    std::int64_t out = 0;
    for (const LinearGroup group : linear_groups) {
        const LinearGroupShape shape = group_shape(model, group);
        std::int64_t a = -1;
        for (const Linear linear : shape.list()) {
            if (!adapter.targets_linear(linear)) continue;
            const LinearSlice slice = lane_slice(model, linear, lane);
            if (a < 0) {
                a = std::ssize(values);
                append(values, projections[0], {rank, slice.in});
            }
            Offsets& offsets = offsets_[static_cast<std::size_t>(linear)];
            offsets = {a, std::ssize(values), out, 0};
            append(values, projections[1], {slice.out, rank});
            out += slice.out.count() * adapter.r;
        }
    }
    const std::int64_t drawn = std::ssize(values);
    for (Offsets& offsets : offsets_) {
        offsets.product += drawn;
        offsets.gradient = offsets.product + out;
    }
    const std::size_t bytes = static_cast<std::size_t>(drawn + 2 * out) * sizeof(float);
    floats_ = backend.allocate(aligned(bytes), "projections of adapters");
    backend.upload(floats_.data(), values.data(), values.size() * sizeof(float));
    backend.zero(floats_.as<float>() + drawn, bytes - values.size() * sizeof(float));
    backend.synchronize();
}

ProjectedFactors::Place ProjectedFactors::at(Linear linear) const {
    const Offsets& offsets = offsets_[static_cast<std::size_t>(linear)];
    auto* floats = floats_.as<float>();
    return {floats + offsets.a, floats + offsets.b, floats + offsets.product,
            floats + offsets.gradient};
}

}  // namespace loratrain
