#pragma once

#include "base/operators.h"
#include "reference/host_matrix.h"

namespace loratrain::reference {

inline double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

/// x / 2 (1 + tanh u), u = sqrt(2 / pi) (x + 0.044715 x³).
inline double gelu_tanh(double x) {
    const double u = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1.0 + std::tanh(u));
}

inline double gelu_tanh_slope(double x) {
    const double root = std::sqrt(2.0 / M_PI);
    const double t = std::tanh(root * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

inline HostMatrix swiglu(const HostMatrix& gate, const HostMatrix& up,
                         Activation activation = Activation::silu) {
    HostMatrix h(gate.rows, gate.cols);
    for (std::size_t i = 0; i < h.values.size(); ++i) {
        const double g = gate.values[i];
        const bool silu = activation == Activation::silu;
        h.values[i] = (silu ? g * sigmoid(g) : gelu_tanh(g)) * up.values[i];
    }
    return h;
}

struct SwiGluGradients {
    HostMatrix dgate;
    HostMatrix dup;
};

inline SwiGluGradients swiglu_backward(const HostMatrix& gate, const HostMatrix& up,
                                       const HostMatrix& dh,
                                       Activation activation = Activation::silu) {
    SwiGluGradients out{HostMatrix(gate.rows, gate.cols), HostMatrix(gate.rows, gate.cols)};
    for (std::size_t i = 0; i < dh.values.size(); ++i) {
        const double g = gate.values[i];
        const double s = sigmoid(g);
        const bool silu = activation == Activation::silu;
        const double slope = silu ? s * (1.0 + g * (1.0 - s)) : gelu_tanh_slope(g);
        out.dgate.values[i] = dh.values[i] * up.values[i] * slope;
        out.dup.values[i] = dh.values[i] * (silu ? g * s : gelu_tanh(g));
    }
    return out;
}

}  // namespace loratrain::reference
