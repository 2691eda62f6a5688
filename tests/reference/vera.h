#pragma once

#include <vector>

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// diag(scale_b) b diag(scale_d).
inline HostMatrix vera_product(const HostMatrix& b, const std::vector<double>& scale_d,
                               const std::vector<double>& scale_b) {
    HostMatrix product(b.rows, b.cols);
    for (std::int64_t j = 0; j < b.rows; ++j) {
        for (std::int64_t i = 0; i < b.cols; ++i) {
            product(j, i) = scale_b[static_cast<std::size_t>(j)] * b(j, i) *
                            scale_d[static_cast<std::size_t>(i)];
        }
    }
    return product;
}

struct VeraSlopes {
    std::vector<double> d;
    std::vector<double> b;
};

/// Of the sum over j, i of gradient[j, i] product[j, i].
inline VeraSlopes vera_slopes(const HostMatrix& gradient, const HostMatrix& b,
                              const std::vector<double>& scale_d,
                              const std::vector<double>& scale_b) {
    VeraSlopes slopes{std::vector<double>(scale_d.size(), 0.0),
                      std::vector<double>(scale_b.size(), 0.0)};
    for (std::int64_t j = 0; j < b.rows; ++j) {
        for (std::int64_t i = 0; i < b.cols; ++i) {
            const auto row = static_cast<std::size_t>(j);
            const auto column = static_cast<std::size_t>(i);
            slopes.d[column] += gradient(j, i) * scale_b[row] * b(j, i);
            slopes.b[row] += gradient(j, i) * b(j, i) * scale_d[column];
        }
    }
    return slopes;
}

}  // namespace loratrain::reference
