#include "io/weights/quantize_linears.h"

#include <algorithm>

#include "base/error.h"
#include "base/quantized.h"
#include "base/threads.h"
#include "io/float_convert.h"
#include "io/weights/quantized_parts.h"

namespace loratrain {

namespace {

std::optional<SourceType> source_of(const std::string& safetensors_dtype, bool store_bf16) {
    if (store_bf16 || safetensors_dtype == "BF16") return SourceType::bf16;
    if (safetensors_dtype == "F16") return SourceType::f16;
    return safetensors_dtype == "F32" ? std::optional(SourceType::f32) : std::nullopt;
}

std::uint64_t write_scales(const BaseTensor& tensor, WeightFormat format,
                           const std::vector<float>& scales, BaseWriter& writer) {
    const std::string name = scales_name(format, tensor.name);
    const std::vector<std::int64_t> shape =
        scales_shape(format, {tensor.shape[0], tensor.shape[1]});
    const StoredType floats = dense_type(WeightFormat::f32);
    if (format != WeightFormat::nf4) {
        writer.write(name, shape, floats, scales.data());
        return scales.size() * sizeof(float);
    }
    std::vector<std::uint8_t> codes(scales.size());
    const NestedScales nested = nest_scales(scales, codes.data());
    const auto groups = static_cast<std::int64_t>(nested.nested.size());
    writer.write(name, shape, bytes_type(), codes.data());
    writer.write(tensor.name + nested_absmax_suffix, {groups}, floats, nested.nested.data());
    writer.write(tensor.name + nested_map_suffix, {256}, floats, nested.map.data());
    writer.write(tensor.name + nested_offset_suffix, {1}, floats, &nested.offset);
    return codes.size() + (nested.nested.size() + nested.map.size() + 1) * sizeof(float);
}

}  // namespace

Quantization check_quantizable(const HfShards& shards, const std::vector<BaseTensor>& linears,
                               WeightFormat format, bool store_bf16, CappedProblems& problems) {
    const WeightTraits& traits = traits_of(format);
    Quantization quantization{format, SourceType::bf16};
    bool first = true;
    for (const BaseTensor& tensor : linears) {
        if (format == WeightFormat::nf4 && tensor.shape[1] % traits.block != 0) {
            problems.add(shards.has(tensor.name) ? shards.where(tensor.name) : tensor.name,
                         cat("has rows of ", tensor.shape[1], " weights, not a multiple of ",
                             traits.block, " as nf4 needs"),
                         "use --quantize int8 or fp8");
        }
        if (!shards.has(tensor.name)) continue;
        const auto source = source_of(shards.entry(tensor.name).dtype, store_bf16);
        if (!source) continue;
        if (first) quantization.source = *source;
        if (*source != quantization.source) {
            problems.add(shards.where(tensor.name),
                         cat("has dtype ", shards.entry(tensor.name).dtype,
                             ", other linear layers ", name_of(quantization.source)),
                         "give --dtype bf16 to make them alike before they are quantised");
        }
        first = false;
    }
    return quantization;
}

std::uint64_t quantize_tensor(const HfShards& shards, const BaseTensor& tensor,
                              const Quantization& quantization, BaseWriter& writer) {
    const std::int64_t rows = tensor.shape[0];
    const std::int64_t cols = tensor.shape[1];
    const WeightTraits& traits = traits_of(quantization.format);
    const HfTensorReader reader(shards, tensor.name);
    const FloatFormat format = float_format(shards.entry(tensor.name).dtype).value();
    const auto code_row = static_cast<std::int64_t>(code_bytes(traits, cols));
    const std::int64_t scale_row = scale_count(traits, cols);
    const std::uint64_t source_row = static_cast<std::uint64_t>(cols) * size_of(format);
    const std::int64_t block = BaseWriter::rows_per_block({rows, cols}, codes_type(quantization));
    std::vector<char> source(static_cast<std::size_t>(block) * source_row);
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(block * code_row));
    std::vector<float> scales(static_cast<std::size_t>(rows * scale_row));
    writer.begin(tensor.name, {rows, code_row}, codes_type(quantization));
    for (std::int64_t first = 0; first < rows; first += block) {
        const std::int64_t count = std::min(block, rows - first);
        reader.read(first, count, source_row, source.data());
        check_finite(format, source.data(), count * cols, first * cols, shards.where(tensor.name));
        share_rows(count, cols, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> row(static_cast<std::size_t>(cols));
            for (std::int64_t i = begin; i < end; ++i) {
                convert_to_f32(format, source.data() + static_cast<std::uint64_t>(i) * source_row,
                               cols, row.data());
                round_to(quantization.source, row);
                quantize_row(quantization.format, row, codes.data() + i * code_row,
                             scales.data() + (first + i) * scale_row);
            }
        });
        writer.write_rows(count, codes.data());
    }
    writer.end();
    return static_cast<std::uint64_t>(rows * code_row) +
           write_scales(tensor, quantization.format, scales, writer);
}

}  // namespace loratrain
