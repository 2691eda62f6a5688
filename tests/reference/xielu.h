#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// x > 0: p x² + x / 2, else n (e^min(x, -1e-6) - 1 - x) + x / 2.
inline HostMatrix xielu(const HostMatrix& x, double p, double n) {
    HostMatrix h = x;
    for (double& v : h.values) {
        v = v > 0.0 ? p * v * v + 0.5 * v : n * (std::expm1(std::min(v, -1e-6)) - v) + 0.5 * v;
    }
    return h;
}

/// dh times the slope.
inline HostMatrix xielu_backward(const HostMatrix& x, const HostMatrix& dh, double p, double n) {
    HostMatrix dx = dh;
    for (std::size_t i = 0; i < dx.values.size(); ++i) {
        const double v = x.values[i];
        const double below = n * ((v < -1e-6 ? std::exp(v) : 0.0) - 1.0) + 0.5;
        dx.values[i] *= v > 0.0 ? 2.0 * p * v + 0.5 : below;
    }
    return dx;
}

}  // namespace loratrain::reference
