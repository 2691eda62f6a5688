#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

struct CrossEntropyResult {
    HostMatrix gradients;
    std::vector<double> loss_sums;
    std::vector<double> wrong_counts;
};

inline CrossEntropyResult cross_entropy(const HostMatrix& logits,
                                        const std::vector<std::int32_t>& targets,
                                        const std::vector<float>& scales,
                                        const std::vector<std::int32_t>& bins,
                                        std::size_t bin_count,
                                        const std::vector<float>& weights = {}) {
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
        out.loss_sums[bins[row]] += weight * (lse - logits(row, targets[row]));
        out.wrong_counts[bins[row]] += best == targets[row] ? 0.0 : 1.0;
        for (std::int64_t j = 0; j < logits.cols; ++j) {
            const double hot = j == targets[row] ? 1.0 : 0.0;
            out.gradients(row, j) = scales[row] * (std::exp(logits(row, j) - lse) - hot);
        }
    }
    return out;
}

}  // namespace loratrain::reference
