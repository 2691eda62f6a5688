#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

struct AttentionResult {
    HostMatrix o;
    HostMatrix lse;
};

struct AttentionGradients {
    HostMatrix dq;
    HostMatrix dk;
    HostMatrix dv;
};

struct AttentionInput {
    HostMatrix q;
    HostMatrix k;
    HostMatrix v;
    std::int64_t head_dim = 0;
    double scale = 1.0;
    std::vector<std::int32_t> offsets;
    std::int64_t sliding_window = 0;
    double soft_cap = 0.0;       ///< 0: none
    std::vector<float> sinks{};  ///< of each query head; empty: none
    double capped(double score) const {
        return soft_cap > 0.0 ? soft_cap * std::tanh(score / soft_cap) : score;
    }
};

/// Sinks of so many heads from -most to `most`; none if that is 0.
inline std::vector<float> spread_sinks(std::int64_t heads, double most) {
    std::vector<float> sinks;
    for (std::int64_t head = 0; most != 0.0 && head < heads; ++head) {
        const double part = static_cast<double>(head) / static_cast<double>(heads - 1);
        sinks.push_back(static_cast<float>(most * (2.0 * part - 1.0)));
    }
    return sinks;
}

/// A head of one query row: where its keys start and which columns it reads.
struct AttentionRow {
    std::int64_t row = 0;
    std::int64_t first_key = 0;
    std::int64_t query_col = 0;
    std::int64_t key_col = 0;
    std::int64_t head = 0;
};

template <class Body>
void for_each_attention_row(const AttentionInput& in, const Body& body) {
    const std::int64_t group = in.q.cols / in.k.cols;
    for (std::size_t sample = 0; sample + 1 < in.offsets.size(); ++sample) {
        for (std::int64_t row = in.offsets[sample]; row < in.offsets[sample + 1]; ++row) {
            for (std::int64_t head = 0; head < in.q.cols / in.head_dim; ++head) {
                const std::int64_t first =
                    in.sliding_window > 0
                        ? std::max<std::int64_t>(in.offsets[sample], row - in.sliding_window + 1)
                        : in.offsets[sample];
                body(
                    AttentionRow{row, first, head * in.head_dim, head / group * in.head_dim, head});
            }
        }
    }
}

/// Softmax over keys first_key .. row; also its log sum exp, and what gradients of the scores are
/// multiplied by for the cap.
inline std::vector<double> probabilities(const AttentionInput& in, const AttentionRow& at,
                                         double& lse, std::vector<double>& slopes) {
    std::vector<double> p;
    for (std::int64_t key = at.first_key; key <= at.row; ++key) {
        double score = 0.0;
        for (std::int64_t j = 0; j < in.head_dim; ++j) {
            score += in.q(at.row, at.query_col + j) * in.k(key, at.key_col + j);
        }
        p.push_back(in.capped(in.scale * score));
        const double t = in.soft_cap > 0.0 ? p.back() / in.soft_cap : 0.0;
        slopes.push_back(1.0 - t * t);
    }
    const bool has_sink = !in.sinks.empty();
    const double sink = has_sink ? in.sinks[static_cast<std::size_t>(at.head)] : 0.0;
    double largest = *std::max_element(p.begin(), p.end());
    if (has_sink) largest = std::max(largest, sink);
    double sum = has_sink ? std::exp(sink - largest) : 0.0;
    for (const double score : p) sum += std::exp(score - largest);
    lse = largest + std::log(sum);
    for (double& value : p) value = std::exp(value - lse);
    return p;
}

inline AttentionResult attention(const AttentionInput& in) {
    AttentionResult result{HostMatrix(in.q.rows, in.q.cols),
                           HostMatrix(in.q.rows, in.q.cols / in.head_dim)};
    for_each_attention_row(in, [&](const AttentionRow& at) {
        std::vector<double> slopes;
        const auto p = probabilities(in, at, result.lse(at.row, at.head), slopes);
        for (std::size_t i = 0; i < p.size(); ++i) {
            const auto key = at.first_key + static_cast<std::int64_t>(i);
            for (std::int64_t j = 0; j < in.head_dim; ++j) {
                result.o(at.row, at.query_col + j) += p[i] * in.v(key, at.key_col + j);
            }
        }
    });
    return result;
}

inline AttentionGradients attention_backward(const AttentionInput& in, const HostMatrix& d_o) {
    AttentionGradients out{HostMatrix(in.q.rows, in.q.cols), HostMatrix(in.k.rows, in.k.cols),
                           HostMatrix(in.v.rows, in.v.cols)};
    for_each_attention_row(in, [&](const AttentionRow& at) {
        double lse = 0.0;
        std::vector<double> slopes;
        const auto p = probabilities(in, at, lse, slopes);
        std::vector<double> dp(p.size());
        double delta = 0.0;
        for (std::size_t i = 0; i < p.size(); ++i) {
            const auto key = at.first_key + static_cast<std::int64_t>(i);
            for (std::int64_t j = 0; j < in.head_dim; ++j) {
                dp[i] += d_o(at.row, at.query_col + j) * in.v(key, at.key_col + j);
            }
            delta += p[i] * dp[i];
        }
        for (std::size_t i = 0; i < p.size(); ++i) {
            const auto key = at.first_key + static_cast<std::int64_t>(i);
            const double ds = in.scale * p[i] * (dp[i] - delta) * slopes[i];
            for (std::int64_t j = 0; j < in.head_dim; ++j) {
                out.dv(key, at.key_col + j) += p[i] * d_o(at.row, at.query_col + j);
                out.dq(at.row, at.query_col + j) += ds * in.k(key, at.key_col + j);
                out.dk(key, at.key_col + j) += ds * in.q(at.row, at.query_col + j);
            }
        }
    });
    return out;
}

}  // namespace loratrain::reference
