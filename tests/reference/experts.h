#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "reference/host_matrix.h"
#include "reference/swiglu.h"

namespace loratrain::reference {

/// What the scores of a router are besides softmax, and the choice besides the largest.
struct RouterRule {
    bool sigmoid = false;
    std::vector<double> bias;  ///< of the choice; empty: 0
    std::int64_t groups = 1;
    std::int64_t used_groups = 1;
    double scale = 1.0;
};

/// What a router makes of logits [T, E]: scores, the k largest (of equals the first) by number,
/// their weights, and the rows in the order of experts.
struct Routes {
    Routes(const HostMatrix& logits, std::int64_t k, bool normalise, RouterRule of = {})
        : rule(std::move(of)),
          probabilities(logits.rows, logits.cols),
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
                    d[static_cast<std::size_t>(expert(t, j))] +=
                        d_weights(t, i) * rule.scale * slope;
                }
            }
            for (std::int64_t e = 0; e < result.cols; ++e) {
                for (std::int64_t f = 0; f < result.cols; ++f) {
                    // d p_f / d logit_e
                    const double p = probabilities(t, f);
                    if (rule.sigmoid && e != f) continue;
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

    RouterRule rule;
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
        std::vector<double> keys;
        for (std::int64_t e = 0; e < logits.cols; ++e) {
            const double l = logits(t, e);
            probabilities(t, e) = rule.sigmoid ? 1.0 / (1.0 + std::exp(-l)) : std::exp(l) / sum;
            keys.push_back(rule.bias.empty()
                               ? l
                               : probabilities(t, e) + rule.bias[static_cast<std::size_t>(e)]);
        }
        std::vector<std::int32_t> order = in_used_groups(t, keys);
        sort_by(keys, order);
        order.resize(static_cast<std::size_t>(per_token));
        std::sort(order.begin(), order.end());
        chosen.insert(chosen.end(), order.begin(), order.end());
        double of_chosen = 0.0;
        for (const std::int32_t e : order) of_chosen += probabilities(t, e);
        for (std::int64_t j = 0; j < per_token; ++j) {
            weights(t, j) = rule.scale * probability(t, j) / (normalised ? of_chosen : 1.0);
        }
    }

    /// From the largest; of equals the first.
    static void sort_by(const std::vector<double>& keys, std::vector<std::int32_t>& order) {
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return keys[static_cast<std::size_t>(a)] > keys[static_cast<std::size_t>(b)];
        });
    }

    /// Experts that may be chosen. Keys are scores plus bias, or logits without a bias, of which
    /// only the order counts: sums of two are of scores.
    std::vector<std::int32_t> in_used_groups(std::int64_t t,
                                             const std::vector<double>& keys) const {
        const auto size = static_cast<std::int64_t>(keys.size()) / rule.groups;
        std::vector<double> sums;
        for (std::int64_t g = 0; g < rule.groups && rule.groups > 1; ++g) {
            std::vector<double> own;
            for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
                own.push_back(rule.bias.empty() ? probabilities(t, e)
                                                : keys[static_cast<std::size_t>(e)]);
            }
            std::sort(own.rbegin(), own.rend());
            sums.push_back(own[0] + own[1]);
        }
        std::vector<std::int32_t> groups(static_cast<std::size_t>(rule.groups));
        std::iota(groups.begin(), groups.end(), 0);
        if (rule.groups > 1) sort_by(sums, groups);
        groups.resize(static_cast<std::size_t>(rule.used_groups));
        std::sort(groups.begin(), groups.end());
        std::vector<std::int32_t> experts;
        for (const std::int32_t g : groups) {
            for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
                experts.push_back(static_cast<std::int32_t>(e));
            }
        }
        return experts;
    }
};

/// Of matrices [experts N, K] one behind the other, x_p W_eᵀ or backward x_p W_e of each row p,
/// which goes to expert e.
inline HostMatrix expert_product(const Routes& routes, const HostMatrix& x, const HostMatrix& w,
                                 bool backward) {
    const std::int64_t experts = static_cast<std::int64_t>(routes.offsets.size()) - 1;
    const std::int64_t n = w.rows / experts;
    HostMatrix y(x.rows, backward ? w.cols : n);
    for (std::int64_t e = 0; e < experts; ++e) {
        for (std::int64_t p = routes.offsets[static_cast<std::size_t>(e)];
             p < routes.offsets[static_cast<std::size_t>(e) + 1]; ++p) {
            for (std::int64_t i = 0; i < n; ++i) {
                for (std::int64_t j = 0; j < w.cols; ++j) {
                    if (backward) {
                        y(p, j) += x(p, i) * w(e * n + i, j);
                    } else {
                        y(p, i) += x(p, j) * w(e * n + i, j);
                    }
                }
            }
        }
    }
    return y;
}

/// Row t for each row p in the order of experts that is row t.
inline HostMatrix gathered(const Routes& routes, const HostMatrix& x) {
    HostMatrix y(static_cast<std::int64_t>(routes.rows.size()), x.cols);
    for (std::int64_t p = 0; p < y.rows; ++p) {
        for (std::int64_t c = 0; c < x.cols; ++c) {
            y(p, c) = x(routes.rows[static_cast<std::size_t>(p)], c);
        }
    }
    return y;
}

/// f(gate) up of [rows, 2 F], gates before ups.
inline HostMatrix gated_product(const HostMatrix& gate_up,
                                Activation activation = Activation::silu) {
    HostMatrix y(gate_up.rows, gate_up.cols / 2);
    for (std::int64_t p = 0; p < y.rows; ++p) {
        for (std::int64_t c = 0; c < y.cols; ++c) {
            y(p, c) =
                gate_of(activation, gate_up(p, c)) * up_of(activation, gate_up(p, y.cols + c));
        }
    }
    return y;
}

/// Gradient of sum of d . gated_product(gate_up).
inline HostMatrix gated_gradient(const HostMatrix& gate_up, const HostMatrix& d,
                                 Activation activation = Activation::silu) {
    HostMatrix y(gate_up.rows, gate_up.cols);
    for (std::int64_t p = 0; p < d.rows; ++p) {
        for (std::int64_t c = 0; c < d.cols; ++c) {
            const double g = gate_up(p, c);
            const double u = gate_up(p, d.cols + c);
            y(p, c) = d(p, c) * up_of(activation, u) * slope_of(activation, g);
            y(p, d.cols + c) = d(p, c) * gate_of(activation, g) * up_slope(activation, u);
        }
    }
    return y;
}

}  // namespace loratrain::reference
