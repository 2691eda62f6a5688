#include "io/adapters/vera_projections.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

#include "base/tensor.h"

namespace loratrain {

namespace {

/// torch.Tensor.uniform_ on a CPU: 24 bits of the Mersenne Twister for a value.
void draw_kaiming_uniform(std::mt19937& generator, NamedTensor& tensor) {
    constexpr std::uint32_t mask = (1U << 24U) - 1;
    constexpr double step = 1.0 / (1U << 24U);
    const double deviation = std::sqrt(2.0) / std::sqrt(static_cast<double>(tensor.shape[1]));
    const auto high = static_cast<float>(std::sqrt(3.0) * deviation);
    const float low = -high;
    const float width = high - low;
    tensor.values.resize(static_cast<std::size_t>(element_count(tensor.shape)));
    for (float& value : tensor.values) {
        const double part = static_cast<double>(generator() & mask) * step;
        value = static_cast<float>(part * width + low);
    }
}

}  // namespace

LinearShape largest_target(const AdapterJob& adapter, const ModelSpec& model) {
    LinearShape largest{};
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (int i = 0; i < linear_count; ++i) {
            const auto linear = static_cast<Linear>(i);
            if (!adapter.targets_linear(layer, linear)) continue;
            const LinearShape shape = linear_shape(model, linear);
            largest.in = std::max(largest.in, shape.in);
            largest.out = std::max(largest.out, shape.out);
        }
    }
    return largest;
}

std::vector<NamedTensor> vera_projection_shapes(const AdapterJob& adapter, const ModelSpec& model) {
    if (!adapter.form.projects) return {};
    const LinearShape largest = largest_target(adapter, model);
    return {{"base_model.vera_A", {adapter.r, largest.in}, {}},
            {"base_model.vera_B", {largest.out, adapter.r}, {}}};
}

std::vector<NamedTensor> vera_projections(const AdapterJob& adapter, const ModelSpec& model) {
    std::vector<NamedTensor> projections = vera_projection_shapes(adapter, model);
    std::mt19937 generator(static_cast<std::uint32_t>(adapter.projection_prng_key));
    for (NamedTensor& tensor : projections) draw_kaiming_uniform(generator, tensor);
    return projections;
}

}  // namespace loratrain
