#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/dynamic_map.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

/// The numbers of one AdamW step that all parameters share.
struct AdamWStep {
    explicit AdamWStep(const AdamW& op, double norm, std::int64_t step)
        : clip(static_cast<float>(
              op.max_grad_norm > 0.0 ? std::min(1.0, op.max_grad_norm / (norm + 1e-6)) : 1.0)),
          decay(static_cast<float>(1.0 - op.learning_rate * op.weight_decay)),
          beta1(static_cast<float>(op.beta1)),
          beta2(static_cast<float>(op.beta2)),
          rest1(static_cast<float>(1.0 - op.beta1)),
          rest2(static_cast<float>(1.0 - op.beta2)),
          rate(static_cast<float>(op.learning_rate /
                                  (1.0 - std::pow(op.beta1, static_cast<double>(step))))),
          root_scale(static_cast<float>(
              1.0 / std::sqrt(1.0 - std::pow(op.beta2, static_cast<double>(step))))),
          epsilon(static_cast<float>(op.epsilon)) {}

    float clip, decay, beta1, beta2, rest1, rest2, rate, root_scale, epsilon;
};

LORATRAIN_VECTOR_CODE
void apply(const AdamW& op, const AdamWStep& step, std::int64_t begin, std::int64_t end) {
    float* const parameters = op.parameters;
    const float* const gradients = op.gradients;
    float* const first = op.first_moments;
    float* const second = op.second_moments;
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) {
        const float g = gradients[i] * step.clip;
        const float m = step.beta1 * first[i] + step.rest1 * g;
        const float v = step.beta2 * second[i] + step.rest2 * g * g;
        first[i] = m;
        second[i] = v;
        parameters[i] = parameters[i] * step.decay -
                        step.rate * m / (std::sqrt(v) * step.root_scale + step.epsilon);
    }
}

/// In pieces that stay in the first cache until their gradients are zeroed.
void apply_and_zero(const AdamW& op, const AdamWStep& step, std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t piece = 1024;
    for (std::int64_t first = begin; first < end; first += piece) {
        const std::int64_t last = std::min(end, first + piece);
        apply(op, step, first, last);
        if (op.zeroes) std::fill(op.gradients + first, op.gradients + last, 0.0F);
    }
}

/// Moments of a block as numbers, the step, and codes again.
void apply_to_block(const AdamW8bit& op, const AdamWStep& step, std::int64_t block) {
    const std::int64_t begin = block * dynamic_block;
    const auto count = static_cast<std::size_t>(std::min(dynamic_block, op.step.count - begin));
    std::array<float, dynamic_block> first;
    std::array<float, dynamic_block> second;
    const std::span of_first(op.first_codes + begin, count);
    const std::span of_second(op.second_codes + begin, count);
    decode_block(signed_dynamic_map(), of_first, op.first_scales[block], first.data());
    decode_block(unsigned_dynamic_map(), of_second, op.second_scales[block], second.data());
    AdamW plain = op.step;
    plain.parameters += begin;
    plain.gradients += begin;
    plain.first_moments = first.data();
    plain.second_moments = second.data();
    apply_and_zero(plain, step, 0, static_cast<std::int64_t>(count));
    op.first_scales[block] =
        encode_block(signed_dynamic_map(), {first.data(), count}, of_first.data());
    op.second_scales[block] =
        encode_block(unsigned_dynamic_map(), {second.data(), count}, of_second.data());
}

/// Counts the step, and takes it where the gradients are finite; else nothing but them changes.
template <class Take>
void take_step(const AdamW& op, const Take& take) {
    const double norm = std::sqrt(*op.grad_sumsq);
    if (!std::isfinite(norm)) {
        *op.skipped_steps += op.counts ? 1 : 0;
        if (op.zeroes) std::fill_n(op.gradients, op.count, 0.0F);
        return;
    }
    *op.applied_steps += op.counts ? 1 : 0;
    take(AdamWStep(op, norm, *op.applied_steps));
}

LORATRAIN_VECTOR_CODE
double sum_of_squares(const float* values, std::int64_t count) {
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t i = 0; i < count; ++i) {
        const double value = values[i];
        sum += value * value;
    }
    return sum;
}

}  // namespace

void CpuBackend::adamw(const AdamW& op) {
    take_step(op, [&](const AdamWStep& step) {
        parallel_rows(threads_, op.count, 1, [&](std::int64_t begin, std::int64_t end) {
            apply_and_zero(op, step, begin, end);
        });
    });
}

void CpuBackend::adamw_8bit(const AdamW8bit& op) {
    take_step(op.step, [&](const AdamWStep& step) {
        const std::int64_t blocks = (op.step.count + dynamic_block - 1) / dynamic_block;
        parallel_rows(threads_, blocks, dynamic_block, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t block = begin; block < end; ++block) apply_to_block(op, step, block);
        });
    });
}

void CpuBackend::sum_squares(const SumSquares& op) {
    constexpr std::int64_t parts = 64;
    std::array<double, parts> sums{};
    const std::int64_t size = (op.count + parts - 1) / parts;
    parallel_for(threads_, parts, [&](std::int64_t i) {
        const std::int64_t begin = std::min(op.count, i * size);
        sums[i] = sum_of_squares(op.values + begin, std::min(size, op.count - begin));
    });
    double total = 0.0;
    for (const double sum : sums) total += sum;
    *op.result = total;
}

}  // namespace loratrain
