#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"

namespace loratrain {

namespace {

void keep(const CachedAttention& op) {
    const std::size_t bytes = static_cast<std::size_t>(op.of.k.cols) * sizeof(float);
    for (std::int64_t row = 0; row < op.of.q.rows; ++row) {
        const std::int64_t place = op.first[row] + op.of.rows.positions[row];
        std::memcpy(op.keys.f32() + place * op.keys.ld, op.of.k.f32() + row * op.of.k.ld, bytes);
        std::memcpy(op.values.f32() + place * op.values.ld, op.of.v.f32() + row * op.of.v.ld,
                    bytes);
    }
}

void attend_to_cache(const CachedAttention& op, std::int64_t row, std::int64_t head,
                     std::int64_t group) {
    const Attention& of = op.of;
    const std::int64_t dim = of.head_dim;
    const std::int64_t last = of.rows.positions[row];
    const float* q = head_rows(of.q, row, head, dim);
    float* o = head_rows(of.o, row, head, dim);
    std::fill(o, o + dim, 0.0F);
    const bool has_sink = of.sinks != nullptr;
    float largest = has_sink ? of.sinks[head] : -std::numeric_limits<float>::infinity();
    float sum = has_sink ? 1.0F : 0.0F;
    const std::int64_t begin =
        of.sliding_window > 0 ? std::max<std::int64_t>(0, last + 1 - of.sliding_window) : 0;
    for (std::int64_t key = begin; key <= last; ++key) {
        const std::int64_t place = op.first[row] + key;
        float score = of.scale * dot(q, head_rows(op.keys, place, head / group, dim), dim);
        if (of.soft_cap > 0.0F) score = of.soft_cap * std::tanh(score / of.soft_cap);
        const float now = std::max(largest, score);
        if (now > largest) {
            const float correction = std::exp(largest - now);
            scale_values(o, dim, correction);
            sum *= correction;
            largest = now;
        }
        const float weight = std::exp(score - largest);
        sum += weight;
        add_scaled_values(o, head_rows(op.values, place, head / group, dim), weight, dim);
    }
    scale_values(o, dim, 1.0F / sum);
}

}  // namespace

void CpuBackend::cached_attention(const CachedAttention& op) {
    require_f32({&op.of.q, &op.of.k, &op.of.v, &op.of.o, &op.keys, &op.values});
    const std::int64_t group = attention_group(op.of);
    const std::int64_t heads = op.of.q.cols / op.of.head_dim;
    keep(op);
    parallel_for(threads_, op.of.q.rows * heads,
                 [&](std::int64_t i) { attend_to_cache(op, i / heads, i % heads, group); });
}

}  // namespace loratrain
