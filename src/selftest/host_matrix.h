#pragma once

#include <cstdint>
#include <vector>

namespace loratrain {

/// Matrices in fp64 for the plain loops of the self test.

/// A row-major matrix.
struct HostMatrix {
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::vector<double> values;

    HostMatrix() = default;
    HostMatrix(std::int64_t row_count, std::int64_t col_count)
        : rows(row_count),
          cols(col_count),
          values(static_cast<std::size_t>(row_count * col_count), 0.0) {}
    double& operator()(std::int64_t row, std::int64_t col) {
        return values[static_cast<std::size_t>(row * cols + col)];
    }
    double operator()(std::int64_t row, std::int64_t col) const {
        return values[static_cast<std::size_t>(row * cols + col)];
    }
};

/// Normal numbers with standard deviation `deviation`, rounded to float; equal on every machine.
HostMatrix random_host_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t key,
                              double deviation);

/// x wᵀ: x [n, k], w [m, k].
HostMatrix times_transposed(const HostMatrix& x, const HostMatrix& w);

/// y += scale * x.
void add_scaled(HostMatrix& y, const HostMatrix& x, double scale);

/// The largest |got - want| divided by the root mean square of `want`.
double relative_error(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace loratrain
