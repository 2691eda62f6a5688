#include "io/adapters/own_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "base/text.h"
#include "io/float_convert.h"
#include "io/tensor_names.h"

namespace loratrain {

namespace {

constexpr std::int64_t floats_at_once = 2 << 20;

/// Of a number in a format, relative, rounded up.
float rounding_of(FloatFormat format) {
    if (format == FloatFormat::bf16) return 1.0F / 256.0F;
    return format == FloatFormat::f16 ? 1.0F / 2048.0F : 1e-7F;
}

bool are_close(const std::vector<float>& stored, const std::vector<float>& own, std::size_t count,
               float rounding) {
    constexpr float least = 6e-8F;  // between numbers of f16
    for (std::size_t i = 0; i < count; ++i) {
        const float error = std::abs(own[i] - stored[i]);
        if (!(error <= rounding * std::abs(own[i]) + least)) return false;
    }
    return true;
}

}  // namespace

std::vector<OwnWeight> own_weights(const ModelSpec& model) {
    std::vector<OwnWeight> found;
    for (const Linear linear : outer_linears) {
        const bool head = linear == Linear::head && !model.tie_word_embeddings;
        for (const char* end : {".weight", ".base_layer.weight"}) {
            found.push_back({cat("base_model.model.", module_path(0, linear), end),
                             head ? head_name : embedding_name});
        }
    }
    return found;
}

bool is_of_base(const SafetensorsFile& file, const OwnWeight& own, const WeightSource& base) {
    const std::optional<FloatFormat> format = float_format(file.entry(own.tensor).dtype);
    if (!format) return false;
    const bool narrow = base.dense_type_of(own.weight) == DType::bf16;
    const float rounding =
        std::max(rounding_of(*format), rounding_of(narrow ? FloatFormat::bf16 : FloatFormat::f32));
    const std::int64_t rows = base.spec().vocab_size;
    const std::int64_t cols = base.spec().hidden_size;
    const std::int64_t at_once = std::max<std::int64_t>(1, floats_at_once / cols);
    const std::uint64_t row_bytes = static_cast<std::uint64_t>(cols) * size_of(*format);
    std::vector<float> values(static_cast<std::size_t>(at_once * cols));
    std::vector<float> stored(values.size());
    std::vector<std::byte> bytes(values.size() * size_of(*format));
    for (std::int64_t first = 0; first < rows; first += at_once) {
        const std::int64_t count = std::min(at_once, rows - first);
        file.read_bytes(own.tensor, static_cast<std::uint64_t>(first) * row_bytes,
                        static_cast<std::uint64_t>(count) * row_bytes, bytes.data());
        convert_to_f32(*format, bytes.data(), count * cols, stored.data());
        base.read_rows(own.weight, first, matrix(values.data(), DType::f32, count, cols));
        if (!are_close(stored, values, static_cast<std::size_t>(count * cols), rounding)) {
            return false;
        }
    }
    return true;
}

}  // namespace loratrain
