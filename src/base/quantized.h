#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/tensor.h"
#include "base/weight_format.h"

namespace loratrain {

/// Quantised weights: what codes stand for, and how they are made.
///
/// A weight has one value, its effective weight, which every backend, file and test uses, forward
/// and backward. It is computed in fp32 and rounded once, to the type that the weight had before
/// quantisation:
///   nf4         nf4_table[code] * scale       a scale per 64 consecutive weights of a row
///   int8        (code * scale) * int8_step    a scale per row
///   e4m3        from_e4m3(code) * scale       a scale per row
///   e4m3_block  from_e4m3(code) * scale       a scale per 128 x 128 weights
/// nf4 has two codes to a byte, the first in the high half. Sources: QLoRA (Dettmers et al., 2023),
/// LLM.int8() (Dettmers et al., 2022), and the dequantisation of the library bitsandbytes.

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

/// Code of the number in nf4_table nearest to `value`; the lower number if two are equally near.
std::uint8_t to_nf4(float value);

/// Rounds to nearest even.
float rounded_to(SourceType type, float value);
void round_to(SourceType type, std::span<float> values);

/// A view of rows of a quantised matrix; it owns nothing. A stored row has `ld` weights:
/// code_bytes(ld) bytes of codes and scale_count(ld) scales.
struct QuantizedMatrix {
    WeightFormat format = WeightFormat::nf4;
    SourceType source = SourceType::bf16;
    const void* codes = nullptr;
    const float* scales = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t ld = 0;
};

/// Effective weights of one row [host]; `target`: [cols].
void effective_row(const QuantizedMatrix& weights, std::int64_t row, float* target);

/// Effective weights of all rows, rounded to the type of `target` [host].
void effective_rows(const QuantizedMatrix& weights, const TensorView& target);

/// Codes and scales of one row [host].
///   nf4         scale = largest magnitude of 64 weights; code = to_nf4(x / scale)
///   int8        scale = largest magnitude of the row; code = rint(x * (127 / scale))
///   e4m3        scale = largest magnitude of the row / 448; code = to_e4m3(x / scale)
///   e4m3_block  as e4m3, for each 128 weights of the row
/// Zeros alone: code 0 (nf4: the code of 0), scale 0 (e4m3, e4m3_block: 1).
void quantize_row(WeightFormat format, std::span<const float> row, std::uint8_t* codes,
                  float* scales);

}  // namespace loratrain
