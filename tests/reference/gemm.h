#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

inline HostMatrix transposed(const HostMatrix& x) {
    HostMatrix result(x.cols, x.rows);
    for (std::int64_t i = 0; i < x.rows; ++i) {
        for (std::int64_t j = 0; j < x.cols; ++j) result(j, i) = x(i, j);
    }
    return result;
}

/// alpha a b + beta c; beta = 0 does not read c.
inline HostMatrix gemm(double alpha, const HostMatrix& a, const HostMatrix& b, double beta,
                       const HostMatrix& c) {
    HostMatrix result(a.rows, b.cols);
    for (std::int64_t i = 0; i < a.rows; ++i) {
        for (std::int64_t l = 0; l < a.cols; ++l) {
            for (std::int64_t j = 0; j < b.cols; ++j) result(i, j) += alpha * a(i, l) * b(l, j);
        }
        for (std::int64_t j = 0; beta != 0.0 && j < b.cols; ++j) result(i, j) += beta * c(i, j);
    }
    return result;
}

}  // namespace loratrain::reference
