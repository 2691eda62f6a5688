#include "kernels/quantize.h"

#include <algorithm>
#include <bit>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

kernels::CodeFormat code_format(WeightFormat format) {
    if (format == WeightFormat::nf4) return kernels::CodeFormat::nf4;
    return format == WeightFormat::int8 ? kernels::CodeFormat::int8 : kernels::CodeFormat::e4m3;
}

kernels::RoundedTo rounding_of(SourceType type) {
    if (type == SourceType::f32) return kernels::RoundedTo::f32;
    return type == SourceType::bf16 ? kernels::RoundedTo::bf16 : kernels::RoundedTo::f16;
}

}  // namespace

void CudaBackend::dequantize(const Dequantize& op) {
    check_shapes(op);
    const QuantizedMatrix& weights = op.weights;
    const WeightTraits& traits = traits_of(weights.format);
    LORATRAIN_CHECK(!traits.dense, traits.name);
    kernels::Codes source;
    source.codes = weights.codes;
    source.scales = weights.scales;
    source.format = code_format(weights.format);
    source.rounded_to = rounding_of(weights.source);
    source.code_bytes = static_cast<std::int64_t>(code_bytes(traits, weights.ld));
    source.scale_count = scale_count(traits, weights.ld);
    source.block_shift = std::bit_width(static_cast<std::uint64_t>(traits.block)) - 1;
    source.int8_step = int8_step;
    float table[nf4_table.size()];
    std::copy(nf4_table.begin(), nf4_table.end(), table);
    CUDA_CHECK(kernels::dequantize(stream_, matrix_of(op.target), source, table));
}

}  // namespace loratrain
