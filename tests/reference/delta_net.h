#pragma once

#include "base/operators.h"
#include "reference/host_matrix.h"
#include "reference/swiglu.h"

namespace loratrain::reference {

/// Rows and offsets of samples.
using Offsets = std::vector<std::int32_t>;

/// What a convolution makes of rows before SiLU. x: [T, C]; w: [C, K].
inline HostMatrix causal_sums(const HostMatrix& x, const HostMatrix& w, const Offsets& offsets) {
    HostMatrix p(x.rows, x.cols);
    for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
        for (std::int64_t t = offsets[sample]; t < offsets[sample + 1]; ++t) {
            for (std::int64_t j = 0; j < w.cols; ++j) {
                const std::int64_t from = t - w.cols + 1 + j;
                if (from < offsets[sample]) continue;
                for (std::int64_t c = 0; c < x.cols; ++c) p(t, c) += w(c, j) * x(from, c);
            }
        }
    }
    return p;
}

inline HostMatrix causal_conv(const HostMatrix& x, const HostMatrix& w, const Offsets& offsets) {
    HostMatrix y = causal_sums(x, w, offsets);
    for (double& value : y.values) value *= sigmoid(value);
    return y;
}

inline HostMatrix causal_conv_backward(const HostMatrix& x, const HostMatrix& w,
                                       const Offsets& offsets, const HostMatrix& dy) {
    const HostMatrix p = causal_sums(x, w, offsets);
    HostMatrix dx(x.rows, x.cols);
    for (std::size_t sample = 0; sample + 1 < offsets.size(); ++sample) {
        for (std::int64_t t = offsets[sample]; t < offsets[sample + 1]; ++t) {
            for (std::int64_t j = 0; j < w.cols; ++j) {
                const std::int64_t from = t - w.cols + 1 + j;
                if (from < offsets[sample]) continue;
                for (std::int64_t c = 0; c < x.cols; ++c) {
                    const double s = sigmoid(p(t, c));
                    dx(from, c) += w(c, j) * dy(t, c) * s * (1.0 + p(t, c) * (1.0 - s));
                }
            }
        }
    }
    return dx;
}

struct DeltaInput {
    HostMatrix q;  ///< [T, Hk Dk], k too
    HostMatrix k;
    HostMatrix v;  ///< [T, Hv Dv]
    HostMatrix g;  ///< [T, Hv], beta too
    HostMatrix beta;
    std::int64_t key_heads = 0;
    std::int64_t value_heads = 0;
    Offsets offsets;

    std::int64_t key_dim() const { return q.cols / key_heads; }
    std::int64_t value_dim() const { return v.cols / value_heads; }
    std::int64_t key_column(std::int64_t head) const {
        return head / (value_heads / key_heads) * key_dim();
    }
};

struct DeltaHeads {
    std::int64_t keys, values, key_dim, value_dim;
};

/// q, k and v that `rows` can hold; -g from 0 to `decay`, beta from 0 to 1.
inline DeltaInput random_delta_input(const DeltaHeads& heads, const Offsets& offsets, DType rows,
                                     double decay) {
    const std::int64_t tokens = offsets.back();
    DeltaInput in{random_matrix(tokens, heads.keys * heads.key_dim, 1, rows),
                  random_matrix(tokens, heads.keys * heads.key_dim, 2, rows),
                  random_matrix(tokens, heads.values * heads.value_dim, 3, rows),
                  random_matrix(tokens, heads.values, 4),
                  random_matrix(tokens, heads.values, 5),
                  heads.keys,
                  heads.values,
                  offsets};
    for (double& g : in.g.values) g = rounded_to(DType::f32, -0.5 * decay * (g + 1.0));
    for (double& beta : in.beta.values) beta = rounded_to(DType::f32, 0.5 * (beta + 1.0));
    return in;
}

struct DeltaGradients {
    HostMatrix dq;
    HostMatrix dk;
    HostMatrix dv;
    HostMatrix d_g;
    HostMatrix d_beta;
};

/// x of a row's head as a column, with its length made one.
inline std::vector<double> unit(const HostMatrix& x, std::int64_t row, std::int64_t first,
                                std::int64_t count) {
    double squares = 1e-6;
    for (std::int64_t i = 0; i < count; ++i) squares += x(row, first + i) * x(row, first + i);
    std::vector<double> y;
    for (std::int64_t i = 0; i < count; ++i) y.push_back(x(row, first + i) / std::sqrt(squares));
    return y;
}

/// dx += the gradient of x, from that of factor unit(x).
inline void unit_backward(const HostMatrix& x, std::int64_t row, std::int64_t first, double factor,
                          const std::vector<double>& dy, HostMatrix& dx) {
    const auto count = static_cast<std::int64_t>(dy.size());
    double squares = 1e-6;
    double along = 0.0;
    for (std::int64_t i = 0; i < count; ++i) {
        squares += x(row, first + i) * x(row, first + i);
        along += x(row, first + i) * dy[static_cast<std::size_t>(i)];
    }
    for (std::int64_t i = 0; i < count; ++i) {
        dx(row, first + i) +=
            factor / std::sqrt(squares) *
            (dy[static_cast<std::size_t>(i)] - x(row, first + i) * along / squares);
    }
}

/// The states of one head before each row of a sample and behind the last, [Dk, Dv] each, and what
/// is added at each row.
struct DeltaStates {
    std::vector<HostMatrix> s;
    std::vector<std::vector<double>> u;
};

inline DeltaStates delta_states_of(const DeltaInput& in, std::int64_t head, std::int64_t begin,
                                   std::int64_t end) {
    const std::int64_t keys = in.key_dim();
    const std::int64_t values = in.value_dim();
    DeltaStates of{{HostMatrix(keys, values)}, {}};
    for (std::int64_t t = begin; t < end; ++t) {
        const std::vector<double> k = unit(in.k, t, in.key_column(head), keys);
        const double decay = std::exp(in.g(t, head));
        HostMatrix next(keys, values);
        std::vector<double> u;
        for (std::int64_t j = 0; j < values; ++j) {
            double predicted = 0.0;
            for (std::int64_t i = 0; i < keys; ++i) {
                predicted += decay * of.s.back()(i, j) * k[static_cast<std::size_t>(i)];
            }
            u.push_back(in.beta(t, head) * (in.v(t, head * values + j) - predicted));
            for (std::int64_t i = 0; i < keys; ++i) {
                next(i, j) = decay * of.s.back()(i, j) + k[static_cast<std::size_t>(i)] * u.back();
            }
        }
        of.s.push_back(next);
        of.u.push_back(u);
    }
    return of;
}

/// body(head, begin, end) for each value head of each sample.
template <class Body>
void for_each_delta_head(const DeltaInput& in, const Body& body) {
    for (std::size_t sample = 0; sample + 1 < in.offsets.size(); ++sample) {
        for (std::int64_t head = 0; head < in.value_heads; ++head) {
            body(head, std::int64_t{in.offsets[sample]}, std::int64_t{in.offsets[sample + 1]});
        }
    }
}

inline HostMatrix delta_rule(const DeltaInput& in) {
    const std::int64_t keys = in.key_dim();
    const std::int64_t values = in.value_dim();
    HostMatrix o(in.v.rows, in.v.cols);
    for_each_delta_head(in, [&](std::int64_t head, std::int64_t begin, std::int64_t end) {
        const DeltaStates states = delta_states_of(in, head, begin, end);
        for (std::int64_t t = begin; t < end; ++t) {
            const std::vector<double> q = unit(in.q, t, in.key_column(head), keys);
            const HostMatrix& s = states.s[static_cast<std::size_t>(t - begin + 1)];
            for (std::int64_t j = 0; j < values; ++j) {
                double sum = 0.0;
                for (std::int64_t i = 0; i < keys; ++i) {
                    sum += s(i, j) * q[static_cast<std::size_t>(i)];
                }
                o(t, head * values + j) = sum / std::sqrt(static_cast<double>(keys));
            }
        }
    });
    return o;
}

inline DeltaGradients delta_rule_backward(const DeltaInput& in, const HostMatrix& d_o) {
    const std::int64_t keys = in.key_dim();
    const std::int64_t values = in.value_dim();
    const double scale = 1.0 / std::sqrt(static_cast<double>(keys));
    DeltaGradients out{HostMatrix(in.q.rows, in.q.cols), HostMatrix(in.k.rows, in.k.cols),
                       HostMatrix(in.v.rows, in.v.cols), HostMatrix(in.g.rows, in.g.cols),
                       HostMatrix(in.g.rows, in.g.cols)};
    for_each_delta_head(in, [&](std::int64_t head, std::int64_t begin, std::int64_t end) {
        const DeltaStates states = delta_states_of(in, head, begin, end);
        const std::int64_t column = in.key_column(head);
        HostMatrix ds(keys, values);
        for (std::int64_t t = end - 1; t >= begin; --t) {
            const auto at = static_cast<std::size_t>(t - begin);
            const std::vector<double> q = unit(in.q, t, column, keys);
            const std::vector<double> k = unit(in.k, t, column, keys);
            const double decay = std::exp(in.g(t, head));
            const double beta = in.beta(t, head);
            const HostMatrix& before = states.s[at];
            std::vector<double> dq(q.size());
            std::vector<double> dk(q.size());
            double d_decay = 0.0;
            HostMatrix d_before(keys, values);
            for (std::int64_t j = 0; j < values; ++j) {
                const double dy = d_o(t, head * values + j);
                double du = 0.0;
                double predicted = 0.0;
                for (std::int64_t i = 0; i < keys; ++i) {
                    const auto n = static_cast<std::size_t>(i);
                    ds(i, j) += scale * q[n] * dy;
                    dq[n] += scale * states.s[at + 1](i, j) * dy;
                    du += ds(i, j) * k[n];
                    dk[n] += ds(i, j) * states.u[at][static_cast<std::size_t>(j)];
                    predicted += before(i, j) * k[n];
                }
                const double error = in.v(t, head * values + j) - decay * predicted;
                out.d_beta(t, head) += du * error;
                out.dv(t, head * values + j) = beta * du;
                d_decay -= beta * du * predicted;
                for (std::int64_t i = 0; i < keys; ++i) {
                    const auto n = static_cast<std::size_t>(i);
                    d_decay += ds(i, j) * before(i, j);
                    dk[n] -= decay * beta * du * before(i, j);
                    d_before(i, j) = decay * ds(i, j) - decay * beta * du * k[n];
                }
            }
            ds = d_before;
            out.d_g(t, head) = d_decay * decay;
            unit_backward(in.q, t, column, 1.0, dq, out.dq);
            unit_backward(in.k, t, column, 1.0, dk, out.dk);
        }
    });
    return out;
}

inline double softplus(double x) {
    return x > 30.0 ? x : std::log1p(std::exp(x));
}

/// Gates of [T, Hv]; a_log, dt_bias: [1, Hv].
inline HostMatrix decay_gates(const HostMatrix& a, const HostMatrix& a_log,
                              const HostMatrix& dt_bias) {
    HostMatrix g(a.rows, a.cols);
    for (std::int64_t t = 0; t < a.rows; ++t) {
        for (std::int64_t h = 0; h < a.cols; ++h) {
            g(t, h) = -std::exp(a_log(0, h)) * softplus(a(t, h) + dt_bias(0, h));
        }
    }
    return g;
}

/// w o / sqrt(mean(o²) + eps) silu(z) of each head; w: [1, Dv].
inline HostMatrix gated_norm(const HostMatrix& o, const HostMatrix& z, const HostMatrix& w,
                             double eps) {
    HostMatrix y(o.rows, o.cols);
    for (std::int64_t t = 0; t < o.rows; ++t) {
        for (std::int64_t first = 0; first < o.cols; first += w.cols) {
            double squares = 0.0;
            for (std::int64_t j = 0; j < w.cols; ++j) squares += o(t, first + j) * o(t, first + j);
            const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(w.cols) + eps);
            for (std::int64_t j = 0; j < w.cols; ++j) {
                const double gate = z(t, first + j);
                y(t, first + j) = w(0, j) * o(t, first + j) * inverse * gate * sigmoid(gate);
            }
        }
    }
    return y;
}

}  // namespace loratrain::reference
