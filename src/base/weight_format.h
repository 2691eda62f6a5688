#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/arithmetic.h"
#include "base/tensor.h"

namespace loratrain {

/// How frozen weights are stored, in base.h5 and on a backend. The type in which a backend computes
/// is another one (Plan::compute). base/quantized.h says what codes and scales stand for.
enum class WeightFormat : std::uint8_t {
    f32,
    bf16,
    nf4,         ///< 4-bit NormalFloat (QLoRA), a scale per 64 weights
    int8,        ///< a scale per row
    e4m3,        ///< 8-bit floating point, a scale per row
    e4m3_block,  ///< a scale per 128 x 128
};

/// The length of a block that is a whole row.
inline constexpr std::int64_t row_block = std::numeric_limits<std::int32_t>::max();

/// What allocation, planning and files need to know of a format. On a backend, a matrix [rows,
/// cols] is stored as rows of codes, a whole number of bytes each. If `block` is not 0, one scale
/// for every `block` consecutive weights of a row follows behind all codes.
struct WeightTraits {
    std::string_view name;         ///< in plan.yaml and base.h5
    std::int64_t bits = 0;         ///< per code
    std::int64_t block = 0;        ///< weights that share a scale, 0 = no scales
    std::int64_t scale_bytes = 0;  ///< per block
    std::optional<DType> dense;    ///< type of the codes if they are the numbers themselves
};

/// Indexed by WeightFormat.
inline constexpr std::array<WeightTraits, 6> weight_formats{{
    {"fp32", 32, 0, 0, DType::f32},
    {"bf16", 16, 0, 0, DType::bf16},
    {"nf4", 4, 64, 4, std::nullopt},
    {"int8", 8, row_block, 4, std::nullopt},
    {"e4m3", 8, row_block, 4, std::nullopt},
    {"e4m3_block", 8, 128, 4, std::nullopt},
}};

constexpr const WeightTraits& traits_of(WeightFormat format) {
    return weight_formats[static_cast<std::size_t>(format)];
}

/// The format with this name; none if no format has it.
constexpr std::optional<WeightFormat> weight_format(std::string_view name) {
    for (std::size_t i = 0; i < weight_formats.size(); ++i) {
        if (weight_formats[i].name == name) return static_cast<WeightFormat>(i);
    }
    return std::nullopt;
}

/// The type that quantised weights had before; their effective weights are rounded to it.
enum class SourceType : std::uint8_t { f32, bf16, f16 };
inline constexpr std::array<std::string_view, 3> source_types{"fp32", "bf16", "fp16"};

constexpr std::string_view name_of(SourceType type) {
    return source_types[static_cast<std::size_t>(type)];
}
constexpr std::optional<SourceType> source_type(std::string_view name) {
    for (std::size_t i = 0; i < source_types.size(); ++i) {
        if (source_types[i] == name) return static_cast<SourceType>(i);
    }
    return std::nullopt;
}

/// How the linears of a model's layers are quantised; all other weights are dense.
struct Quantization {
    WeightFormat format = WeightFormat::nf4;
    SourceType source = SourceType::bf16;
    friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// "nf4 of bf16".
inline std::string to_string(const Quantization& quantization) {
    std::string text(traits_of(quantization.format).name);
    return text.append(" of ").append(name_of(quantization.source));
}

/// True if a GEMM in `compute` reads the codes as they are. Otherwise they are widened into scratch
/// of that type at each use.
constexpr bool gemm_reads(const WeightTraits& traits, DType compute) {
    return traits.dense == compute;
}

/// Bytes of the codes, number of the scales, and bytes of the scales, for `cols` weights of a row.
constexpr std::uint64_t code_bytes(const WeightTraits& traits, std::int64_t cols) {
    return static_cast<std::uint64_t>((cols * traits.bits + 7) / 8);
}
constexpr std::int64_t scale_count(const WeightTraits& traits, std::int64_t cols) {
    return traits.block == 0 ? 0 : ceil_div(cols, traits.block);
}
constexpr std::uint64_t scale_bytes(const WeightTraits& traits, std::int64_t cols) {
    return static_cast<std::uint64_t>(scale_count(traits, cols) * traits.scale_bytes);
}

struct MatrixShape {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    constexpr std::int64_t elements() const { return rows * cols; }
};

/// Offsets of the parts of a stored matrix: codes at 0, scales behind them.
struct WeightLayout {
    std::uint64_t scales = 0;  ///< offset in bytes
    std::uint64_t bytes = 0;   ///< codes and scales, aligned
};
constexpr WeightLayout weight_layout(const WeightTraits& traits, const MatrixShape& shape) {
    const auto rows = static_cast<std::uint64_t>(shape.rows);
    const std::uint64_t codes = aligned(rows * code_bytes(traits, shape.cols));
    return {codes, codes + aligned(rows * scale_bytes(traits, shape.cols))};
}

}  // namespace loratrain
