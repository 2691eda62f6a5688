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

inline double gate_of(Activation activation, double x) {
    if (activation == Activation::sigmoid) return sigmoid(x);
    return activation == Activation::silu ? x * sigmoid(x) : gelu_tanh(x);
}

inline double slope_of(Activation activation, double x) {
    const double s = sigmoid(x);
    if (activation == Activation::sigmoid) return s * (1.0 - s);
    return activation == Activation::silu ? s * (1.0 + x * (1.0 - s)) : gelu_tanh_slope(x);
}

inline HostMatrix swiglu(const HostMatrix& gate, const HostMatrix& up,
                         Activation activation = Activation::silu) {
    HostMatrix h(gate.rows, gate.cols);
    for (std::size_t i = 0; i < h.values.size(); ++i) {
        h.values[i] = gate_of(activation, gate.values[i]) * up.values[i];
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
        out.dgate.values[i] = dh.values[i] * up.values[i] * slope_of(activation, g);
        out.dup.values[i] = dh.values[i] * gate_of(activation, g);
    }
    return out;
}

}  // namespace loratrain::reference
