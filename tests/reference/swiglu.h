#pragma once

#include <algorithm>

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
    if (activation == Activation::clamped_swiglu) {
        const double m = std::min(x, 7.0);
        return m * sigmoid(1.702 * m);
    }
    if (activation == Activation::sigmoid) return sigmoid(x);
    return activation == Activation::silu ? x * sigmoid(x) : gelu_tanh(x);
}

inline double slope_of(Activation activation, double x) {
    if (activation == Activation::clamped_swiglu) {
        const double t = sigmoid(1.702 * x);
        return x > 7.0 ? 0.0 : t + 1.702 * x * t * (1.0 - t);
    }
    const double s = sigmoid(x);
    if (activation == Activation::sigmoid) return s * (1.0 - s);
    return activation == Activation::silu ? s * (1.0 + x * (1.0 - s)) : gelu_tanh_slope(x);
}

/// What the gate is multiplied by.
inline double up_of(Activation activation, double u) {
    return activation == Activation::clamped_swiglu ? std::clamp(u, -7.0, 7.0) + 1.0 : u;
}

inline double up_slope(Activation activation, double u) {
    return activation == Activation::clamped_swiglu && std::abs(u) > 7.0 ? 0.0 : 1.0;
}

inline HostMatrix swiglu(const HostMatrix& gate, const HostMatrix& up,
                         Activation activation = Activation::silu) {
    HostMatrix h(gate.rows, gate.cols);
    for (std::size_t i = 0; i < h.values.size(); ++i) {
        h.values[i] = gate_of(activation, gate.values[i]) * up_of(activation, up.values[i]);
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
        const double u = up.values[i];
        out.dgate.values[i] = dh.values[i] * up_of(activation, u) * slope_of(activation, g);
        out.dup.values[i] = dh.values[i] * gate_of(activation, g) * up_slope(activation, u);
    }
    return out;
}

}  // namespace loratrain::reference
