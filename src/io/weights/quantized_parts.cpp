#include "io/weights/quantized_parts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace loratrain {

namespace {

/// `steps` + 1 numbers from 0.1 to 1, from both ends towards the middle as torch does.
std::vector<float> tenth_to_one(int steps) {
    const double step = (1.0F - 0.1F) / static_cast<float>(steps);
    std::vector<float> numbers;
    for (int i = 0; i <= steps; ++i) {
        const bool first_half = i < (steps + 1) / 2;
        const double value = first_half ? 0.1F + step * i : 1.0 - step * (steps - i);
        numbers.push_back(static_cast<float>(value));
    }
    return numbers;
}

}  // namespace

std::string scales_name(WeightFormat format, const std::string& weight_name) {
    constexpr std::string_view weight = "weight";
    switch (format) {
        case WeightFormat::nf4:
            return weight_name + ".absmax";
        case WeightFormat::int8:
            return weight_name.substr(0, weight_name.size() - weight.size()) + "SCB";
        case WeightFormat::e4m3:
            return weight_name + "_scale";
        case WeightFormat::e4m3_block:
            return weight_name + "_scale_inv";
        default:
            LORATRAIN_CHECK(false, weight_name, " in ", traits_of(format).name);
    }
}

std::vector<std::int64_t> scales_shape(WeightFormat format, const MatrixShape& shape) {
    const std::int64_t of_row = scale_count(traits_of(format), shape.cols);
    if (format == WeightFormat::e4m3_block)
        return {(shape.rows + tile_rows - 1) / tile_rows, of_row};
    return {shape.rows * of_row};
}

float NestedScales::scale(std::int64_t number, std::uint8_t code) const {
    // The product is exact in fp64, so that it is rounded before the sum is.
    const double product =
        static_cast<double>(map[code]) * nested[static_cast<std::size_t>(number / nested_block)];
    return static_cast<float>(product) + offset;
}

NestedScales nest_scales(std::span<const float> scales, std::uint8_t* codes) {
    NestedScales result;
    result.map = dynamic_map();
    const double sum = std::accumulate(scales.begin(), scales.end(), 0.0);
    result.offset = static_cast<float>(sum / static_cast<double>(scales.size()));
    std::array<float, 255> bounds{};
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        bounds[i] = (result.map[i] + result.map[i + 1]) / 2.0F;
    }
    for (std::size_t first = 0; first < scales.size(); first += nested_block) {
        const auto block =
            scales.subspan(first, std::min<std::size_t>(nested_block, scales.size() - first));
        float largest = 0.0F;
        for (const float scale : block)
            largest = std::max(largest, std::abs(scale - result.offset));
        const float factor = largest > 0.0F ? 1.0F / largest : 0.0F;
        for (const float scale : block) {
            const float value = (scale - result.offset) * factor;
            *codes++ = static_cast<std::uint8_t>(
                std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
        }
        result.nested.push_back(largest);
    }
    return result;
}

std::array<float, 256> dynamic_map() {
    std::array<float, 256> map{};
    std::size_t count = 0;
    for (int digits = 0; digits < 7; ++digits) {
        const std::vector<float> bounds = tenth_to_one(1 << digits);
        const auto unit = static_cast<float>(std::pow(10.0, digits - 6));
        for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
            const float value = unit * ((bounds[i] + bounds[i + 1]) / 2.0F);
            map[count++] = value;
            map[count++] = -value;
        }
    }
    map[count++] = 0.0F;
    map[count++] = 1.0F;
    LORATRAIN_CHECK(count == map.size(), count);
    std::sort(map.begin(), map.end());
    return map;
}

}  // namespace loratrain
