#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/tensor.h"

namespace loratrain {

/// Conversion of float formats in which weights come.
enum class FloatFormat : std::uint8_t { f32, bf16, f16, f64 };

/// The format that safetensors calls "F32", "BF16", "F16" or "F64"; none for other names.
std::optional<FloatFormat> float_format(const std::string& safetensors_dtype);
std::size_t size_of(FloatFormat format);

float half_to_float(std::uint16_t bits);
void convert_to_f32(FloatFormat format, const void* source, std::int64_t count, float* target);
void convert_to_bf16(FloatFormat format, const void* source, std::int64_t count, BFloat16* target);

/// Throws InputError at `where` that names the first nan or infinity, counting values[0] as number
/// `first`.
void check_finite(FloatFormat format, const void* values, std::int64_t count, std::int64_t first,
                  const std::string& where);

}  // namespace loratrain
