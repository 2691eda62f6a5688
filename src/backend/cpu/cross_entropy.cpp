#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"

namespace loratrain {

namespace {

/// Long fp32 sums lose digits: sums of this many terms are added up in fp64.
constexpr std::int64_t terms_per_sum = 1024;

float largest(const float* x, std::int64_t count) {
    float result = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : result)
    for (std::int64_t j = 0; j < count; ++j) result = x[j] > result ? x[j] : result;
    return result;
}

/// True when some logit before the target is >= it or some logit after it is larger, or either is
/// not a number.
bool target_loses(const float* logits, std::int64_t count, std::int64_t target) {
    const float own = logits[target];
    const float before = largest(logits, target);
    const float after = largest(logits + target + 1, count - target - 1);
    const bool first = target == 0 || before < own;
    return !(first && after <= own);
}

template <bool store>
double sum_of_exp(float* x, std::int64_t count, float shift) {
    double total = 0.0;
    for (std::int64_t begin = 0; begin < count; begin += terms_per_sum) {
        float* part = x + begin;
        const std::int64_t terms = std::min(terms_per_sum, count - begin);
        float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = 0; j < terms; ++j) {
            const float e = exp_inline(part[j] - shift);
            if constexpr (store) part[j] = e;
            sum += e;
        }
        total += sum;
    }
    return total;
}

double row_loss(const CrossEntropy& op, std::int64_t row) {
    float* logits = op.logits.f32() + row * op.logits.ld;
    const std::int64_t target = op.targets[row];
    const std::int64_t count = op.logits.cols;
    const float own = logits[target];
    const float shift = largest(logits, count);
    const double sum = op.gradient ? sum_of_exp<true>(logits, count, shift)
                                   : sum_of_exp<false>(logits, count, shift);
    if (op.gradient) {
        const float own_probability = static_cast<float>(logits[target] / sum);
        const auto factor = static_cast<float>(op.scales[row] / sum);
#pragma omp simd
        for (std::int64_t j = 0; j < count; ++j) logits[j] *= factor;
        logits[target] = op.scales[row] * (own_probability - 1.0F);
    }
    return static_cast<double>(shift) - static_cast<double>(own) + std::log(sum);
}

}  // namespace

void CpuBackend::cross_entropy(const CrossEntropy& op) {
    require_f32({&op.logits});
    const auto rows = static_cast<std::size_t>(op.logits.rows);
    if (row_losses_.size() < rows) {
        row_losses_.resize(rows);
        row_wrong_.resize(rows);
    }
    parallel_rows(
        threads_, op.logits.rows, op.logits.cols, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t row = begin; row < end; ++row) {
                const float* logits = op.logits.f32() + row * op.logits.ld;
                row_wrong_[row] = target_loses(logits, op.logits.cols, op.targets[row]) ? 1 : 0;
                row_losses_[row] = row_loss(op, row);
            }
        });
    for (std::size_t row = 0; row < rows; ++row) {
        op.loss_sums[op.bins[row]] += row_losses_[row];
        op.wrong_counts[op.bins[row]] += row_wrong_[row];
    }
}

}  // namespace loratrain
