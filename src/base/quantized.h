#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/tensor_view.h"
#include "base/weight_format.h"

namespace loratrain {

/// What the codes of quantised weights stand for. Of each weight there is one number, its effective
/// weight, computed in fp32 and rounded once, to the type that it had before quantisation; every
/// backend, file and test uses it, forward and backward:
///   nf4         table[code] * scale, 64 consecutive weights of a row share a scale
///   int8        (code * scale) * fp32(1 / 127), a scale per row
///   e4m3        from_e4m3(code) * scale, a scale per row
///   e4m3_block  the same, a scale per 128 x 128 weights
/// nf4 has two codes to a byte, the first in the high half. Source: QLoRA (Dettmers et al., 2023),
/// LLM.int8() (2022), and the dequantisation that their library bitsandbytes does.

/// Quantiles of a normal distribution, scaled to [-1, 1] (QLoRA, appendix E).
inline constexpr std::array<float, 16> nf4_table{
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};
inline constexpr float int8_step = 7.874015718698502e-3F;  ///< 1 / 127

/// The code of the number in the table that is nearest to `value`; between two, the lower one.
std::uint8_t to_nf4(float value);

/// Rounds to nearest even.
float rounded_to(SourceType type, float value);
void round_to(SourceType type, std::span<float> values);

/// Rows of a quantised matrix, not owned. Stored rows have `ld` weights: code_bytes(ld) bytes of
/// codes and scale_count(ld) scales.
struct QuantizedMatrix {
    WeightFormat format = WeightFormat::nf4;
    SourceType source = SourceType::bf16;
    const void* codes = nullptr;
    const float* scales = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;
};

/// The effective weights of one row of it [host]; `target`: [cols].
void effective_row(const QuantizedMatrix& weights, std::int64_t row, float* target);

/// Of all its rows, rounded to the type of `target` [host].
void effective_rows(const QuantizedMatrix& weights, const TensorView& target);

/// Codes and scales of one row [host]. nf4: the largest of 64 magnitudes is
/// the scale; int8: that of the row, code = rint(x * (127 / scale)); e4m3: that of the row / 448,
/// code = to_e4m3(x / scale); e4m3_block: likewise each 128
/// of the row by themselves. Rows or blocks of zeros have code 0 (nf4: that of 0), and where the
/// scale would divide, scale 1.
void quantize_row(WeightFormat format, std::span<const float> row, std::uint8_t* codes,
                  float* scales);

}  // namespace loratrain
