#pragma once

#include "backend/backend.h"
#include "reference/host_matrix.h"

namespace loratrain::reference {

struct CrossEntropyResult {
    HostMatrix gradients;
    std::vector<double> loss_sums;
    std::vector<double> wrong_counts;
};

inline CrossEntropyResult cross_entropy(
    const HostMatrix& logits, const std::vector<std::int32_t>& targets,
    const std::vector<float>& scales, const std::vector<std::int32_t>& bins, std::size_t bin_count,
    const std::vector<float>& weights = {}, const TokenLoss& form = {}) {
    CrossEntropyResult out{HostMatrix(logits.rows, logits.cols), std::vector<double>(bin_count),
                           std::vector<double>(bin_count)};
    for (std::int64_t row = 0; row < logits.rows; ++row) {
        std::int64_t best = 0;
        for (std::int64_t j = 0; j < logits.cols; ++j) {
            if (logits(row, j) > logits(row, best)) best = j;
        }
        double sum = 0.0;
        for (std::int64_t j = 0; j < logits.cols; ++j) {
            sum += std::exp(logits(row, j) - logits(row, best));
        }
        const double lse = logits(row, best) + std::log(sum);
        const double weight = weights.empty() ? 1.0 : weights[row];
        const double own = logits(row, targets[row]);
        double mean = 0.0;
        for (std::int64_t j = 0; j < logits.cols; ++j) mean += logits(row, j) / logits.cols;
        const double e = form.label_smoothing;
        const double share = form.dft ? std::exp(own - lse) : 1.0;
        const double smoothed = e > 0.0 ? e * (lse - mean) : 0.0;
        out.wrong_counts[bins[row]] += best == targets[row] ? 0.0 : 1.0;
        if (form.entropy) {
            double entropy = 0.0;
            for (std::int64_t j = 0; j < logits.cols; ++j) {
                const double log_p = logits(row, j) - lse;
                if (!std::isinf(log_p)) entropy -= std::exp(log_p) * log_p;
            }
            out.loss_sums[bins[row]] += weight * entropy;
            continue;
        }
        out.loss_sums[bins[row]] +=
            weight * (share * ((1.0 - e) * (lse - own) + smoothed) + form.z_loss * lse * lse);
        for (std::int64_t j = 0; j < logits.cols; ++j) {
            const double hot = j == targets[row] ? 1.0 : 0.0;
            const double p = std::exp(logits(row, j) - lse);
            const double want = (1.0 - e) * hot + e / static_cast<double>(logits.cols);
            out.gradients(row, j) =
                scales[row] * (share * (p - want) + 2.0 * form.z_loss * lse * p);
        }
    }
    return out;
}

}  // namespace loratrain::reference
