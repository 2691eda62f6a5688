#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// What a router makes of logits [T, E]: softmax, its k largest (of equals the first) by number,
/// their weights, and the rows in the order of experts.
struct Routes {
    Routes(const HostMatrix& logits, std::int64_t k, bool normalise)
        : probabilities(logits.rows, logits.cols),
          weights(logits.rows, k),
          offsets(static_cast<std::size_t>(logits.cols) + 1),
          per_token(k),
          normalised(normalise) {
        for (std::int64_t t = 0; t < logits.rows; ++t) choose(logits, t);
        places.resize(chosen.size());
        for (std::int64_t e = 0; e < logits.cols; ++e) {
            for (std::size_t i = 0; i < chosen.size(); ++i) {
                if (chosen[i] != e) continue;
                places[i] = static_cast<std::int32_t>(rows.size());
                rows.push_back(static_cast<std::int32_t>(i) / static_cast<std::int32_t>(k));
            }
            offsets[static_cast<std::size_t>(e) + 1] = static_cast<std::int32_t>(rows.size());
        }
    }

    /// Of weights, by the product rule.
    HostMatrix gradient(const HostMatrix& d_weights) const {
        HostMatrix result(probabilities.rows, probabilities.cols);
        for (std::int64_t t = 0; t < result.rows; ++t) {
            std::vector<double> d(static_cast<std::size_t>(result.cols));
            double sum = 0.0;
            for (std::int64_t j = 0; j < per_token; ++j) sum += probability(t, j);
            for (std::int64_t i = 0; i < per_token; ++i) {
                for (std::int64_t j = 0; j < per_token; ++j) {
                    // d w_i / d p_j
                    double slope = i == j ? 1.0 : 0.0;
                    if (normalised) slope = slope / sum - probability(t, i) / (sum * sum);
                    d[static_cast<std::size_t>(expert(t, j))] += d_weights(t, i) * slope;
                }
            }
            for (std::int64_t e = 0; e < result.cols; ++e) {
                for (std::int64_t f = 0; f < result.cols; ++f) {
                    // d p_f / d logit_e
                    const double p = probabilities(t, f);
                    result(t, e) += d[static_cast<std::size_t>(f)] * p *
                                    ((e == f ? 1.0 : 0.0) - probabilities(t, e));
                }
            }
        }
        return result;
    }
    std::int32_t expert(std::int64_t t, std::int64_t j) const {
        return chosen[static_cast<std::size_t>(t * per_token + j)];
    }
    double probability(std::int64_t t, std::int64_t j) const {
        return probabilities(t, expert(t, j));
    }

    HostMatrix probabilities;
    HostMatrix weights;
    std::vector<std::int32_t> chosen;
    std::vector<std::int32_t> places;
    std::vector<std::int32_t> rows;
    std::vector<std::int32_t> offsets;
    std::int64_t per_token;
    bool normalised;

  private:
    void choose(const HostMatrix& logits, std::int64_t t) {
        double sum = 0.0;
        for (std::int64_t e = 0; e < logits.cols; ++e) sum += std::exp(logits(t, e));
        for (std::int64_t e = 0; e < logits.cols; ++e) {
            probabilities(t, e) = std::exp(logits(t, e)) / sum;
        }
        std::vector<std::int32_t> order(static_cast<std::size_t>(logits.cols));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return logits(t, a) > logits(t, b);
        });
        order.resize(static_cast<std::size_t>(per_token));
        std::sort(order.begin(), order.end());
        chosen.insert(chosen.end(), order.begin(), order.end());
        double of_chosen = 0.0;
        for (const std::int32_t e : order) of_chosen += probabilities(t, e);
        for (std::int64_t j = 0; j < per_token; ++j) {
            weights(t, j) = probability(t, j) / (normalised ? of_chosen : 1.0);
        }
    }
};

}  // namespace loratrain::reference
