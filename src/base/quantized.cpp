#include "base/quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/e4m3.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

constexpr std::int64_t nf4_block = traits_of(WeightFormat::nf4).block;

/// What separates neighbours of the table.
constexpr std::array<float, 15> nf4_bounds = [] {
    std::array<float, 15> bounds{};
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        bounds[i] = (nf4_table[i] + nf4_table[i + 1]) / 2.0F;
    }
    return bounds;
}();

constexpr std::array<float, 256> e4m3_values = [] {
    std::array<float, 256> values{};
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = from_e4m3(static_cast<std::uint8_t>(i));
    }
    return values;
}();

std::uint32_t nf4_code(float value) {
    std::uint32_t code = 0;
    for (const float bound : nf4_bounds) code += value > bound ? 1U : 0U;
    return code;
}

float rounded_to_half(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits & 0x80000000U;
    std::uint32_t magnitude = bits & 0x7fffffffU;
    if (magnitude >= 0x7f800000U) return value;
    constexpr std::uint32_t smallest_normal = 0x38800000U;  // 2^-14
    constexpr std::uint32_t infinity_from = 0x477ff000U;    // 65520
    if (magnitude >= infinity_from) {
        magnitude = 0x7f800000U;
    } else if (magnitude < smallest_normal) {
        // The last place of 1/2 is the step of the subnormals.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        magnitude = std::bit_cast<std::uint32_t>(shifted - 0.5F);
    } else {
        magnitude = (magnitude + 0xfffU + ((magnitude >> 13U) & 1U)) & ~0x1fffU;
    }
    return std::bit_cast<float>(sign | magnitude);
}

/// body(first weight, count, scale) for the parts of a row that share a scale.
template <class Body>
void for_each_block(const QuantizedMatrix& weights, std::int64_t row, const Body& body) {
    const WeightTraits& traits = traits_of(weights.format);
    const float* scales = weights.scales + row * scale_count(traits, weights.ld);
    for (std::int64_t first = 0; first < weights.cols; first += traits.block) {
        body(first, std::min(traits.block, weights.cols - first), *scales++);
    }
}

LORATRAIN_VECTOR_CODE
void nf4_row(const QuantizedMatrix& weights, std::int64_t row, const std::uint8_t* codes,
             float* target) {
    for_each_block(weights, row, [&](std::int64_t first, std::int64_t count, float scale) {
        std::array<float, 16> values{};
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = rounded_to(weights.source, nf4_table[i] * scale);
        }
        for (std::int64_t i = 0; i < count; ++i) {
            const std::uint8_t both = codes[(first + i) / 2];
            target[first + i] = values[i % 2 == 0 ? both >> 4U : both & 15U];
        }
    });
}

LORATRAIN_VECTOR_CODE
float largest_magnitude(std::span<const float> values) {
    std::uint32_t largest = 0;  // magnitudes are ordered as their bits
    for (const float value : values) {
        largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
    }
    return std::bit_cast<float>(largest);
}

LORATRAIN_VECTOR_CODE
void quantize_nf4(std::span<const float> row, std::uint8_t* codes, float* scales) {
    LORATRAIN_CHECK(row.size() % nf4_block == 0, "nf4 of ", row.size(), " columns");
    for (std::size_t first = 0; first < row.size(); first += nf4_block) {
        const auto block = row.subspan(first, nf4_block);
        const float scale = largest_magnitude(block);
        const float factor = scale > 0.0F ? 1.0F / scale : 0.0F;
        std::array<std::uint32_t, nf4_block> found{};
        for (std::size_t i = 0; i < nf4_block; ++i) found[i] = nf4_code(block[i] * factor);
        for (std::size_t i = 0; i < nf4_block; i += 2) {
            *codes++ = static_cast<std::uint8_t>(found[i] << 4U | found[i + 1]);
        }
        *scales++ = scale;
    }
}

LORATRAIN_VECTOR_CODE
void quantize_int8(std::span<const float> row, std::uint8_t* codes, float* scales) {
    constexpr float most = 127.0F;
    const float scale = largest_magnitude(row);
    const float factor = scale > 0.0F ? most / scale : 0.0F;
    for (std::size_t i = 0; i < row.size(); ++i) {
        const float code = std::clamp(std::nearbyint(row[i] * factor), -most, most);
        codes[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
    }
    *scales = scale;
}

LORATRAIN_VECTOR_CODE
void quantize_e4m3(std::span<const float> row, std::size_t block, std::uint8_t* codes,
                   float* scales) {
    for (std::size_t first = 0; first < row.size(); first += block) {
        const auto values = row.subspan(first, std::min(block, row.size() - first));
        const float largest = largest_magnitude(values);
        const float scale = largest > 0.0F ? largest / largest_e4m3 : 1.0F;
        for (const float value : values) *codes++ = to_e4m3(value / scale);
        *scales++ = scale;
    }
}

}  // namespace

std::uint8_t to_nf4(float value) {
    return static_cast<std::uint8_t>(nf4_code(value));
}

float rounded_to(SourceType type, float value) {
    if (type == SourceType::f32) return value;
    return type == SourceType::bf16 ? to_float(to_bfloat16(value)) : rounded_to_half(value);
}

LORATRAIN_VECTOR_CODE
void round_to(SourceType type, std::span<float> values) {
    if (type == SourceType::bf16) {
        for (float& value : values) value = to_float(to_bfloat16(value));
    } else if (type == SourceType::f16) {
        for (float& value : values) value = rounded_to_half(value);
    }
}

LORATRAIN_VECTOR_CODE
void effective_row(const QuantizedMatrix& weights, std::int64_t row, float* target) {
    const WeightTraits& traits = traits_of(weights.format);
    LORATRAIN_CHECK(!traits.dense, traits.name);
    const auto* codes = static_cast<const std::uint8_t*>(weights.codes) +
                        static_cast<std::uint64_t>(row) * code_bytes(traits, weights.ld);
    if (weights.format == WeightFormat::nf4) return nf4_row(weights, row, codes, target);
    const bool int8 = weights.format == WeightFormat::int8;
    for_each_block(weights, row, [&](std::int64_t first, std::int64_t count, float scale) {
        for (std::int64_t i = first; i < first + count; ++i) {
            const float value =
                int8 ? static_cast<float>(static_cast<std::int8_t>(codes[i])) * scale * int8_step
                     : e4m3_values[codes[i]] * scale;
            target[i] = rounded_to(weights.source, value);
        }
    });
}

void effective_rows(const QuantizedMatrix& weights, const TensorView& target) {
    std::vector<float> values(static_cast<std::size_t>(weights.cols));
    for (std::int64_t row = 0; row < weights.rows; ++row) {
        if (target.dtype == DType::f32) {
            effective_row(weights, row, target.f32() + row * target.ld);
            continue;
        }
        effective_row(weights, row, values.data());
        std::transform(values.begin(), values.end(), static_cast<BFloat16*>(target.offset(row, 0)),
                       to_bfloat16);
    }
}

void quantize_row(WeightFormat format, std::span<const float> row, std::uint8_t* codes,
                  float* scales) {
    const auto block = static_cast<std::size_t>(traits_of(format).block);
    switch (format) {
        case WeightFormat::nf4:
            return quantize_nf4(row, codes, scales);
        case WeightFormat::int8:
            return quantize_int8(row, codes, scales);
        case WeightFormat::e4m3:
        case WeightFormat::e4m3_block:
            return quantize_e4m3(row, block, codes, scales);
        default:
            LORATRAIN_CHECK(false, "rows in ", traits_of(format).name);
    }
}

}  // namespace loratrain
