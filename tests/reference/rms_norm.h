#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// 1 / sqrt(mean(x²) + eps) of columns [first, first + width) of a row.
inline double inverse_rms(const HostMatrix& x, std::int64_t row, std::int64_t first,
                          std::int64_t width, double eps) {
    double sum = 0.0;
    for (std::int64_t j = 0; j < width; ++j) sum += x(row, first + j) * x(row, first + j);
    return 1.0 / std::sqrt(sum / static_cast<double>(width) + eps);
}

inline HostMatrix rms_norm(const HostMatrix& x, const HostMatrix& weight, double eps,
                           std::int64_t groups) {
    HostMatrix y(x.rows, x.cols);
    const std::int64_t width = x.cols / groups;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t first = 0; first < x.cols; first += width) {
            const double inverse = inverse_rms(x, row, first, width, eps);
            for (std::int64_t j = 0; j < width; ++j) {
                y(row, first + j) = x(row, first + j) * inverse * weight(0, j);
            }
        }
    }
    return y;
}

/// dx_j = inverse (w_j dy_j - x_j inverse² / width * sum_i x_i w_i dy_i).
inline HostMatrix rms_norm_backward(const HostMatrix& x, const HostMatrix& weight, double eps,
                                    std::int64_t groups, const HostMatrix& dy) {
    HostMatrix dx(x.rows, x.cols);
    const std::int64_t width = x.cols / groups;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t first = 0; first < x.cols; first += width) {
            const double inverse = inverse_rms(x, row, first, width, eps);
            double dot = 0.0;
            for (std::int64_t j = 0; j < width; ++j) {
                dot += x(row, first + j) * weight(0, j) * dy(row, first + j);
            }
            for (std::int64_t j = 0; j < width; ++j) {
                const double along =
                    x(row, first + j) * inverse * inverse * dot / static_cast<double>(width);
                dx(row, first + j) = inverse * (weight(0, j) * dy(row, first + j) - along);
            }
        }
    }
    return dx;
}

}  // namespace loratrain::reference
