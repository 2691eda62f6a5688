#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/tensor.h"

namespace loratrain {

/// Float formats that weights come in.
enum class FloatFormat : std::uint8_t { f32, bf16, f16, f64 };

/// "F32", "BF16", "F16", "F64" as safetensors names them; none for everything else.
std::optional<FloatFormat> float_format(const std::string& safetensors_dtype);
std::size_t size_of(FloatFormat format);

float half_to_float(std::uint16_t bits);
void convert_to_f32(FloatFormat format, const void* source, std::int64_t count, float* target);
void convert_to_bf16(FloatFormat format, const void* source, std::int64_t count, BFloat16* target);

/// InputError at `where` that names the first nan or infinity; `first` is the number of values[0].
void check_finite(FloatFormat format, const void* values, std::int64_t count, std::int64_t first,
                  const std::string& where);

}  // namespace loratrain
