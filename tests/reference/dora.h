#pragma once

#include <cmath>
#include <vector>

#include "reference/lora.h"

namespace loratrain::reference {

/// |W + scale B A|² per row.
inline std::vector<double> dora_squares(const HostMatrix& w, const LoraFactors& f) {
    std::vector<double> squares(static_cast<std::size_t>(w.rows), 0.0);
    for (std::int64_t n = 0; n < w.rows; ++n) {
        for (std::int64_t k = 0; k < w.cols; ++k) {
            double value = w(n, k);
            for (std::int32_t i = 0; i < f.rank; ++i) value += f.scale * f.b(n, i) * f.a(i, k);
            squares[static_cast<std::size_t>(n)] += value * value;
        }
    }
    return squares;
}

/// (m / sqrt(squares) - less) ∘ x.
inline HostMatrix dora_scale(const HostMatrix& x, const std::vector<double>& m,
                             const std::vector<double>& squares, double less) {
    HostMatrix result(x.rows, x.cols);
    for (std::int64_t t = 0; t < x.rows; ++t) {
        for (std::int64_t n = 0; n < x.cols; ++n) {
            const auto j = static_cast<std::size_t>(n);
            result(t, n) = (m[j] / std::sqrt(squares[j]) - less) * x(t, n);
        }
    }
    return result;
}

/// Sum over t of dy v / sqrt(squares).
inline std::vector<double> dora_grad_magnitude(const HostMatrix& dy, const HostMatrix& v,
                                               const std::vector<double>& squares) {
    std::vector<double> gradient(squares.size(), 0.0);
    for (std::int64_t t = 0; t < dy.rows; ++t) {
        for (std::int64_t n = 0; n < dy.cols; ++n) {
            const auto j = static_cast<std::size_t>(n);
            gradient[j] += dy(t, n) * v(t, n) / std::sqrt(squares[j]);
        }
    }
    return gradient;
}

}  // namespace loratrain::reference
