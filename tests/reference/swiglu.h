#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

inline double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

inline HostMatrix swiglu(const HostMatrix& gate, const HostMatrix& up) {
    HostMatrix h(gate.rows, gate.cols);
    for (std::size_t i = 0; i < h.values.size(); ++i) {
        h.values[i] = gate.values[i] * sigmoid(gate.values[i]) * up.values[i];
    }
    return h;
}

struct SwiGluGradients {
    HostMatrix dgate;
    HostMatrix dup;
};

inline SwiGluGradients swiglu_backward(const HostMatrix& gate, const HostMatrix& up,
                                       const HostMatrix& dh) {
    SwiGluGradients out{HostMatrix(gate.rows, gate.cols), HostMatrix(gate.rows, gate.cols)};
    for (std::size_t i = 0; i < dh.values.size(); ++i) {
        const double g = gate.values[i];
        const double s = sigmoid(g);
        out.dgate.values[i] = dh.values[i] * up.values[i] * s * (1.0 + g * (1.0 - s));
        out.dup.values[i] = dh.values[i] * g * s;
    }
    return out;
}

}  // namespace loratrain::reference
