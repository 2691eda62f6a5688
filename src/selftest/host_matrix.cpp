#include "selftest/host_matrix.h"

#include <cmath>
#include <limits>

#include "base/rng.h"

namespace loratrain {

HostMatrix random_host_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t key,
                              double deviation) {
    HostMatrix matrix(rows, cols);
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
        matrix.values[i] = static_cast<float>(deviation * normal_float(key, i));
    }
    return matrix;
}

HostMatrix times_transposed(const HostMatrix& x, const HostMatrix& w) {
    HostMatrix y(x.rows, w.rows);
    for (std::int64_t i = 0; i < x.rows; ++i) {
        for (std::int64_t j = 0; j < w.rows; ++j) {
            double sum = 0.0;
            for (std::int64_t k = 0; k < x.cols; ++k) sum += x(i, k) * w(j, k);
            y(i, j) = sum;
        }
    }
    return y;
}

void add_scaled(HostMatrix& y, const HostMatrix& x, double scale) {
    for (std::size_t i = 0; i < y.values.size(); ++i) y.values[i] += scale * x.values[i];
}

double relative_error(const std::vector<double>& got, const std::vector<double>& want) {
    if (got.size() != want.size() || want.empty()) return std::numeric_limits<double>::infinity();
    double squares = 0.0;
    double worst = 0.0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        squares += want[i] * want[i];
        const double difference = std::fabs(got[i] - want[i]);
        if (!(difference <= worst)) worst = difference;  // NaN stays
        if (std::isnan(worst)) return std::numeric_limits<double>::infinity();
    }
    return worst / std::sqrt(squares / static_cast<double>(want.size()));
}

}  // namespace loratrain
