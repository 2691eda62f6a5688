#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

/// Long fp32 sums lose digits: sums of this many terms are added up in fp64.
constexpr std::int64_t terms_per_sum = 1024;

float largest(const float* x, std::int64_t count) {
    return largest_of(x, count, -std::numeric_limits<float>::infinity());
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
LORATRAIN_VECTOR_CODE double sum_of_exp(float* x, std::int64_t count, float shift) {
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

LORATRAIN_VECTOR_CODE
double sum_of(const float* x, std::int64_t count) {
    double total = 0.0;
    for (std::int64_t begin = 0; begin < count; begin += terms_per_sum) {
        const std::int64_t end = std::min(begin + terms_per_sum, count);
        float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = begin; j < end; ++j) sum += x[j];
        total += sum;
    }
    return total;
}

/// Sum of e^(x - shift) (x - shift).
LORATRAIN_VECTOR_CODE double sum_of_weighted(const float* x, std::int64_t count, float shift) {
    double total = 0.0;
    for (std::int64_t begin = 0; begin < count; begin += terms_per_sum) {
        const std::int64_t end = std::min(begin + terms_per_sum, count);
        float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t j = begin; j < end; ++j) {
            const float e = exp_inline(x[j] - shift);
            sum += e == 0.0F ? 0.0F : e * (x[j] - shift);
        }
        total += sum;
    }
    return total;
}

/// The numbers of TokenLoss, of a row.
struct FormedLoss {
    double loss;
    double softmax;  ///< what it is multiplied by in the gradient
    double all;      ///< taken from every logit's gradient
    double target;   ///< and from the target's beside
};

/// `mean` of the logits; for the entropy weighted by their softmax.
FormedLoss formed_loss(const TokenLoss& form, double log_sum, double target, double mean) {
    if (form.entropy) return {log_sum - mean, 0.0, 0.0, 0.0};
    const double weight = form.dft ? std::exp(target - log_sum) : 1.0;
    const double smoothing = form.label_smoothing;
    const double z = form.z_loss;
    // A mean of -inf counts where something is smoothed.
    const double smoothed = smoothing > 0.0 ? smoothing * mean : 0.0;
    return {weight * (log_sum - (1.0 - smoothing) * target - smoothed) + z * log_sum * log_sum,
            weight + 2.0 * z * log_sum, weight * smoothing, weight * (1.0 - smoothing)};
}

/// `exponentials` of a row's logits become its gradient; `share`: 1 / their sum over all lanes;
/// `target`: among these columns, or -1.
LORATRAIN_VECTOR_CODE
void formed_gradient(float* exponentials, std::int64_t count, std::int64_t target, float scale,
                     double share, std::int64_t columns, const FormedLoss& of) {
    const auto factor = static_cast<float>(scale * of.softmax * share);
    const auto all = static_cast<float>(scale * of.all / static_cast<double>(columns));
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) exponentials[j] = exponentials[j] * factor - all;
    if (target >= 0) exponentials[target] -= static_cast<float>(scale * of.target);
}

double formed_row_loss(const CrossEntropy& op, std::int64_t row) {
    float* logits = op.logits.f32() + row * op.logits.ld;
    const std::int64_t count = op.logits.cols;
    const double own = logits[op.targets[row]];
    double mean =
        op.form.label_smoothing > 0.0F ? sum_of(logits, count) / static_cast<double>(count) : 0.0;
    const float shift = largest(logits, count);
    const double weighted = op.form.entropy ? sum_of_weighted(logits, count, shift) : 0.0;
    const double sum = op.gradient ? sum_of_exp<true>(logits, count, shift)
                                   : sum_of_exp<false>(logits, count, shift);
    if (op.form.entropy) mean = shift + weighted / sum;
    const FormedLoss formed = formed_loss(op.form, shift + std::log(sum), own, mean);
    if (op.gradient) {
        formed_gradient(logits, count, op.targets[row], op.scales[row], 1.0 / sum, count, formed);
    }
    return formed.loss;
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
        scale_values(logits, count, factor);
        logits[target] = op.scales[row] * (own_probability - 1.0F);
    }
    return static_cast<double>(shift) - static_cast<double>(own) + std::log(sum);
}

/// What exponents are taken from; where all logits are -inf their sum is 0, not NaN, as other lanes
/// may have larger ones.
float shift_of(float largest) {
    return std::isinf(largest) && largest < 0.0F ? 0.0F : largest;
}

ShardStatistics statistics_of_row(const ShardedCrossEntropy& op, std::int64_t row) {
    float* logits = op.of.logits.f32() + row * op.of.logits.ld;
    const std::int64_t count = op.of.logits.cols;
    const std::int64_t target = op.of.targets[row] - op.first_column;
    ShardStatistics own;
    if (target >= 0 && target < count) {
        own.target = static_cast<double>(logits[target]);
        own.standing = target_loses(logits, count, target) ? -1.0 : 1.0;
    }
    if (op.of.form.label_smoothing > 0.0F) own.logits = sum_of(logits, count);
    const float most = largest(logits, count);
    own.largest = static_cast<double>(most);
    if (op.of.form.entropy) own.logits = sum_of_weighted(logits, count, shift_of(most));
    own.sum = op.of.gradient && op.of.soft_cap == 0.0F
                  ? sum_of_exp<true>(logits, count, shift_of(most))
                  : sum_of_exp<false>(logits, count, shift_of(most));
    return own;
}

const ShardStatistics& statistics_at(const ShardedCrossEntropy& op, std::int32_t lane,
                                     std::int64_t row) {
    return op.statistics[lane * op.of.logits.rows + row];
}

/// A row's numbers over all lanes.
struct WholeRow {
    double largest = -std::numeric_limits<double>::infinity();
    double sum = 0.0;  ///< of exp(logit - largest)
    double target = 0.0;
    double logits = 0.0;
    bool loses = true;

    /// What exponentials of a lane are multiplied by.
    double weight(const ShardStatistics& lane) const {
        const bool nothing = std::isinf(lane.largest) && lane.largest < 0.0;
        return nothing ? 0.0 : std::exp(lane.largest - largest);
    }
};

WholeRow whole_row(const ShardedCrossEntropy& op, std::int64_t row) {
    WholeRow whole;
    std::int32_t owner = 0;
    for (std::int32_t lane = 0; lane < op.lanes; ++lane) {
        const ShardStatistics& part = statistics_at(op, lane, row);
        whole.largest = std::max(whole.largest, part.largest);
        if (part.standing == 0.0) continue;
        owner = lane;
        whole.target = part.target;
        whole.loses = part.standing < 0.0;
    }
    for (std::int32_t lane = 0; lane < op.lanes; ++lane) {
        const ShardStatistics& part = statistics_at(op, lane, row);
        const double weight = whole.weight(part);
        whole.sum += part.sum * weight;
        whole.logits += op.of.form.entropy && weight > 0.0
                            ? weight * (part.logits + (part.largest - whole.largest) * part.sum)
                            : part.logits;
        if (lane < owner) whole.loses = whole.loses || !(part.largest < whole.target);
        if (lane > owner) whole.loses = whole.loses || !(part.largest <= whole.target);
    }
    return whole;
}

/// The logits hold their exponentials, here and below.
void gradient_of_row(const ShardedCrossEntropy& op, std::int64_t row, const WholeRow& whole) {
    float* logits = op.of.logits.f32() + row * op.of.logits.ld;
    const ShardStatistics& own = statistics_at(op, op.lane, row);
    const double share = whole.weight(own) / whole.sum;
    const std::int64_t target = op.of.targets[row] - op.first_column;
    const float scale = op.of.scales[row];
    const float own_probability =
        own.standing == 0.0 ? 0.0F : static_cast<float>(logits[target] * share);
    const auto factor = static_cast<float>(scale * share);
    scale_values(logits, op.of.logits.cols, factor);
    if (own.standing != 0.0) logits[target] = scale * (own_probability - 1.0F);
}

FormedLoss formed_loss(const ShardedCrossEntropy& op, const WholeRow& whole) {
    const double mean = op.of.form.entropy ? whole.largest + whole.logits / whole.sum
                                           : whole.logits / static_cast<double>(op.columns);
    return formed_loss(op.of.form, whole.largest + std::log(whole.sum), whole.target, mean);
}

void formed_gradient_of_row(const ShardedCrossEntropy& op, std::int64_t row,
                            const WholeRow& whole) {
    float* logits = op.of.logits.f32() + row * op.of.logits.ld;
    const ShardStatistics& own = statistics_at(op, op.lane, row);
    const std::int64_t target = own.standing == 0.0 ? -1 : op.of.targets[row] - op.first_column;
    formed_gradient(logits, op.of.logits.cols, target, op.of.scales[row],
                    whole.weight(own) / whole.sum, op.columns, formed_loss(op, whole));
}

/// The gradient of capped logits becomes that of the logits before.
void before_cap(const float* capped, std::int64_t count, float cap, float* gradient) {
    const float inverse = 1.0F / cap;
#pragma omp simd
    for (std::int64_t j = 0; j < count; ++j) {
        const float t = capped[j] * inverse;
        gradient[j] *= 1.0F - t * t;
    }
}

}  // namespace

void CpuBackend::soft_cap(const SoftCap& op) {
    require_f32({&op.x});
    const float inverse = 1.0F / op.cap;
    parallel_rows(threads_, op.x.rows, op.x.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            float* x = op.x.f32() + row * op.x.ld;
#pragma omp simd
            for (std::int64_t j = 0; j < op.x.cols; ++j)
                x[j] = op.cap * tanh_inline(x[j] * inverse);
        }
    });
}

void CpuBackend::cross_entropy(const CrossEntropy& op) {
    require_f32({&op.logits});
    reserve_row_losses(op.logits.rows);
    const std::int64_t count = op.logits.cols;
    const bool capped = op.soft_cap > 0.0F && op.gradient;
    const ThreadScratch scratch = reserve_scratch(capped ? count : 0);
    parallel_rows(threads_, op.logits.rows, count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            float* logits = op.logits.f32() + row * op.logits.ld;
            if (capped) std::copy_n(logits, count, scratch.local());
            row_wrong_[row] = target_loses(logits, count, op.targets[row]) ? 1 : 0;
            row_losses_[row] = op.form.is_plain() ? row_loss(op, row) : formed_row_loss(op, row);
            if (capped) before_cap(scratch.local(), count, op.soft_cap, logits);
        }
    });
    add_row_losses(op);
}

void CpuBackend::shard_statistics(const ShardedCrossEntropy& op) {
    require_f32({&op.of.logits});
    const std::int64_t rows = op.of.logits.rows;
    ShardStatistics* own = op.statistics + op.lane * rows;
    parallel_rows(threads_, rows, op.of.logits.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) own[row] = statistics_of_row(op, row);
    });
}

void CpuBackend::sharded_cross_entropy(const ShardedCrossEntropy& op) {
    const std::int64_t rows = op.of.logits.rows;
    const std::int64_t count = op.of.logits.cols;
    reserve_row_losses(rows);
    const bool capped = op.of.soft_cap > 0.0F && op.of.gradient;
    const ThreadScratch scratch = reserve_scratch(capped ? count : 0);
    parallel_rows(threads_, rows, count, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const WholeRow whole = whole_row(op, row);
            row_wrong_[row] = whole.loses ? 1 : 0;
            row_losses_[row] = op.of.form.is_plain()
                                   ? whole.largest - whole.target + std::log(whole.sum)
                                   : formed_loss(op, whole).loss;
            if (!op.of.gradient) continue;
            float* logits = op.of.logits.f32() + row * op.of.logits.ld;
            if (capped) {
                std::copy_n(logits, count, scratch.local());
                const auto most = static_cast<float>(statistics_at(op, op.lane, row).largest);
                sum_of_exp<true>(logits, count, shift_of(most));
            }
            if (op.of.form.is_plain()) {
                gradient_of_row(op, row, whole);
            } else {
                formed_gradient_of_row(op, row, whole);
            }
            if (capped) before_cap(scratch.local(), count, op.of.soft_cap, logits);
        }
    });
    add_row_losses(op.of);
}

void CpuBackend::reserve_row_losses(std::int64_t rows) {
    const auto count = static_cast<std::size_t>(rows);
    if (row_losses_.size() >= count) return;
    row_losses_.resize(count);
    row_wrong_.resize(count);
}

void CpuBackend::add_row_losses(const CrossEntropy& op) {
    for (std::int64_t row = 0; row < op.logits.rows; ++row) {
        const double loss = row_losses_[row];
        op.loss_sums[op.bins[row]] += op.weights ? double{op.weights[row]} * loss : loss;
        if (op.wrong_counts != nullptr) op.wrong_counts[op.bins[row]] += row_wrong_[row];
    }
}

}  // namespace loratrain
