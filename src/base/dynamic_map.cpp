#include "base/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace loratrain {

namespace {

constexpr int powers = 7;

/// Middles of the parts into which `items` points cut [0.1, 1], evenly, to the bit as
/// torch.linspace in fp32.
std::vector<float> middles(int items) {
    const float step = (1.0F - 0.1F) / static_cast<float>(items - 1);
    const auto point = [&](int i) {
        return i < items / 2 ? std::fma(step, static_cast<float>(i), 0.1F)
                             : std::fma(-step, static_cast<float>(items - 1 - i), 1.0F);
    };
    std::vector<float> result;
    for (int i = 0; i + 1 < items; ++i) result.push_back((point(i) + point(i + 1)) / 2.0F);
    return result;
}

DynamicMap make_map(bool with_signs) {
    std::vector<float> numbers{0.0F, 1.0F};
    for (int i = 0; i < powers; ++i) {
        const auto power = static_cast<float>(std::pow(10.0, i - (powers - 1)));
        const int parts = with_signs ? 1 << i : 1 << (i + 1);
        for (const float middle : middles(parts + 1)) {
            numbers.push_back(power * middle);
            if (with_signs) numbers.push_back(-power * middle);
        }
    }
    std::sort(numbers.begin(), numbers.end());
    DynamicMap map{};
    std::copy_n(numbers.begin(), map.size(), map.begin());
    return map;
}

float scale_of(std::span<const float> values) {
    float largest = 0.0F;
    for (const float value : values) largest = std::max(largest, std::fabs(value));
    return largest;
}

void encode(const DynamicMap& map, std::span<const float> values, float scale,
            std::uint8_t* codes) {
    const float inverse = scale > 0.0F ? scale : 1.0F;
    for (std::size_t i = 0; i < values.size(); ++i) {
        codes[i] = dynamic_code(map, values[i] / inverse);
    }
}

bool stand_for(const DynamicMap& map, std::span<const float> values, float scale,
               const std::uint8_t* codes) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (map[codes[i]] * scale != values[i]) return false;
    }
    return true;
}

}  // namespace

const DynamicMap& signed_dynamic_map() {
    static const DynamicMap map = make_map(true);
    return map;
}

const DynamicMap& unsigned_dynamic_map() {
    static const DynamicMap map = make_map(false);
    return map;
}

std::uint8_t dynamic_code(const DynamicMap& map, float x) {
    const auto above = std::upper_bound(map.begin(), map.end(), x);
    if (above == map.begin()) return 0;
    const auto below = static_cast<std::size_t>(above - map.begin()) - 1;
    if (above == map.end()) return static_cast<std::uint8_t>(below);
    const bool nearer_above = *above - x < x - map[below];
    return static_cast<std::uint8_t>(nearer_above ? below + 1 : below);
}

float encode_block(const DynamicMap& map, std::span<const float> values, std::uint8_t* codes) {
    const float scale = scale_of(values);
    encode(map, values, scale, codes);
    return scale;
}

float encode_again(const DynamicMap& map, std::span<const float> values, std::uint8_t* codes) {
    const float largest = encode_block(map, values, codes);
    if (stand_for(map, values, largest, codes)) return largest;
    float scale = largest / std::fabs(map.front());
    constexpr int units = 4;
    for (int i = 0; i < units; ++i) scale = std::nextafter(scale, 0.0F);
    for (int i = 0; i <= 2 * units; ++i) {
        encode(map, values, scale, codes);
        if (stand_for(map, values, scale, codes)) return scale;
        scale = std::nextafter(scale, INFINITY);
    }
    return encode_block(map, values, codes);
}

void decode_block(const DynamicMap& map, std::span<const std::uint8_t> codes, float scale,
                  float* values) {
    for (std::size_t i = 0; i < codes.size(); ++i) values[i] = map[codes[i]] * scale;
}

}  // namespace loratrain
