#include "io/float_convert.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

template <class Stored>
Stored load(const void* source, std::int64_t i) {
    Stored value;
    std::memcpy(&value, static_cast<const char*>(source) + i * std::int64_t{sizeof(Stored)},
                sizeof(Stored));
    return value;
}

struct ReadF32 {
    float operator()(const void* source, std::int64_t i) const { return load<float>(source, i); }
};
struct ReadBf16 {
    float operator()(const void* source, std::int64_t i) const {
        return to_float(load<BFloat16>(source, i));
    }
};
struct ReadF16 {
    float operator()(const void* source, std::int64_t i) const {
        return half_to_float(load<std::uint16_t>(source, i));
    }
};
struct ReadF64 {
    float operator()(const void* source, std::int64_t i) const {
        return static_cast<float>(load<double>(source, i));
    }
};

template <class Reader, class Writer>
LORATRAIN_VECTOR_CODE void convert_all(const Reader& read, const void* source, std::int64_t count,
                                       const Writer& write) {
    for (std::int64_t i = 0; i < count; ++i) write(i, read(source, i));
}

template <class Writer>
void convert(FloatFormat format, const void* source, std::int64_t count, const Writer& write) {
    switch (format) {
        case FloatFormat::f32:
            return convert_all(ReadF32{}, source, count, write);
        case FloatFormat::bf16:
            return convert_all(ReadBf16{}, source, count, write);
        case FloatFormat::f16:
            return convert_all(ReadF16{}, source, count, write);
        case FloatFormat::f64:
            return convert_all(ReadF64{}, source, count, write);
    }
}

/// A value is finite if its exponent's bits are not all set.
template <class Bits>
LORATRAIN_VECTOR_CODE bool any_has_bits(const void* values, std::int64_t count, Bits exponent) {
    Bits any = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const auto bits = static_cast<Bits>(load<Bits>(values, i) & exponent);
        any = static_cast<Bits>(any | static_cast<Bits>(bits == exponent));
    }
    return any != 0;
}

bool all_are_finite(FloatFormat format, const void* values, std::int64_t count) {
    switch (format) {
        case FloatFormat::f32:
            return !any_has_bits(values, count, std::uint32_t{0x7f800000});
        case FloatFormat::bf16:
            return !any_has_bits(values, count, std::uint16_t{0x7f80});
        case FloatFormat::f16:
            return !any_has_bits(values, count, std::uint16_t{0x7c00});
        case FloatFormat::f64:
            break;  // a finite double may be no finite float
    }
    return false;
}

void copy(const void* source, std::int64_t bytes, void* target) {
    if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
}

}  // namespace

std::optional<FloatFormat> float_format(const std::string& safetensors_dtype) {
    if (safetensors_dtype == "F32") return FloatFormat::f32;
    if (safetensors_dtype == "BF16") return FloatFormat::bf16;
    if (safetensors_dtype == "F16") return FloatFormat::f16;
    if (safetensors_dtype == "F64") return FloatFormat::f64;
    return std::nullopt;
}

std::size_t size_of(FloatFormat format) {
    switch (format) {
        case FloatFormat::f32:
            return 4;
        case FloatFormat::f64:
            return 8;
        default:
            return 2;
    }
}

float half_to_float(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) {
        return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
    }
    if (magnitude < 0x400U) {
        const float small = static_cast<float>(magnitude) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(small));
    }
    constexpr std::uint32_t bias_difference = (127U - 15U) << 23U;
    return std::bit_cast<float>(sign | ((magnitude << 13U) + bias_difference));
}

void convert_to_f32(FloatFormat format, const void* source, std::int64_t count, float* target) {
    if (format == FloatFormat::f32) return copy(source, count * 4, target);
    convert(format, source, count, [target](std::int64_t i, float value) { target[i] = value; });
}

void convert_to_bf16(FloatFormat format, const void* source, std::int64_t count, BFloat16* target) {
    if (format == FloatFormat::bf16) return copy(source, count * 2, target);
    convert(format, source, count,
            [target](std::int64_t i, float value) { target[i] = to_bfloat16(value); });
}

void check_finite(FloatFormat format, const void* values, std::int64_t count, std::int64_t first,
                  const std::string& where) {
    if (all_are_finite(format, values, count)) return;
    convert(format, values, count, [&](std::int64_t i, float value) {
        if (std::isfinite(value)) return;
        throw InputError(where,
                         cat("element ", first + i, " is ", std::isnan(value) ? "nan" : cat(value)),
                         "the file is damaged, or the training that made it diverged");
    });
}

}  // namespace loratrain
