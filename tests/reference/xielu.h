#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// Factors of x² above 0, of the exponential below, and of x.
struct XieluFactors {
    double p, n, linear;
};

/// x > 0: p x² + linear x, else n (e^min(x, -1e-6) - 1 - x) + linear x.
inline HostMatrix xielu(const HostMatrix& x, const XieluFactors& f) {
    HostMatrix h = x;
    for (double& v : h.values) {
        const double bent = v > 0.0 ? f.p * v * v : f.n * (std::expm1(std::min(v, -1e-6)) - v);
        v = bent + f.linear * v;
    }
    return h;
}

/// dh times the slope.
inline HostMatrix xielu_backward(const HostMatrix& x, const HostMatrix& dh, const XieluFactors& f) {
    HostMatrix dx = dh;
    for (std::size_t i = 0; i < dx.values.size(); ++i) {
        const double v = x.values[i];
        const double below = f.n * ((v < -1e-6 ? std::exp(v) : 0.0) - 1.0);
        dx.values[i] *= (v > 0.0 ? 2.0 * f.p * v : below) + f.linear;
    }
    return dx;
}

}  // namespace loratrain::reference
