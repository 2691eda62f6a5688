#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// Rotates by +angle or, backward, by -angle; angle = fp32(position * inv_freq_j) as in HF.
inline HostMatrix rope(const HostMatrix& x, std::int64_t head_dim,
                       const std::vector<float>& inv_freq,
                       const std::vector<std::int32_t>& positions, bool backward) {
    HostMatrix y = x;
    const std::int64_t half = head_dim / 2;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t first = 0; first < x.cols; first += head_dim) {
            for (std::int64_t j = 0; j < half; ++j) {
                const double angle = static_cast<float>(positions[row]) * inv_freq[j];
                const double c = std::cos(angle);
                const double s = backward ? -std::sin(angle) : std::sin(angle);
                const double low = x(row, first + j);
                const double high = x(row, first + j + half);
                y(row, first + j) = low * c - high * s;
                y(row, first + j + half) = high * c + low * s;
            }
        }
    }
    return y;
}

}  // namespace loratrain::reference
