#pragma once

#include "reference/host_matrix.h"

namespace loratrain::reference {

/// What of a head is rotated, and how.
struct RotatedPart {
    std::int64_t columns = 0;  ///< 0: all
    bool interleaved = false;
    double length = 1.0;
};

/// Rotates by +angle or, backward, by -angle; angle = fp32(position * inv_freq_j) as in HF.
inline HostMatrix rope(const HostMatrix& x, std::int64_t head_dim,
                       const std::vector<float>& inv_freq,
                       const std::vector<std::int32_t>& positions, bool backward,
                       const RotatedPart& part = {}) {
    HostMatrix y = x;
    const std::int64_t half = (part.columns == 0 ? head_dim : part.columns) / 2;
    for (std::int64_t row = 0; row < x.rows; ++row) {
        for (std::int64_t first = 0; first < x.cols; first += head_dim) {
            for (std::int64_t j = 0; j < half; ++j) {
                const double angle = static_cast<float>(positions[row]) * inv_freq[j];
                const double c = std::cos(angle);
                const double s = backward ? -std::sin(angle) : std::sin(angle);
                const std::int64_t at = first + (part.interleaved ? 2 * j : j);
                const std::int64_t other = part.interleaved ? at + 1 : at + half;
                const double low = x(row, at);
                const double high = x(row, other);
                y(row, at) = part.length * (low * c - high * s);
                y(row, other) = part.length * (high * c + low * s);
            }
        }
    }
    return y;
}

}  // namespace loratrain::reference
