#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// Dense fp64 matrix in column-major order, in host memory.
struct DenseColumns {
    DenseColumns(std::int64_t row_count, std::int64_t column_count)
        : rows(row_count),
          columns(column_count),
          values(static_cast<std::size_t>(row_count * column_count)) {}

    std::span<double> column(std::int64_t i) {
        return {values.data() + i * rows, static_cast<std::size_t>(rows)};
    }
    std::span<const double> column(std::int64_t i) const {
        return {values.data() + i * rows, static_cast<std::size_t>(rows)};
    }
    double& at(std::int64_t row, std::int64_t i) {
        return values[static_cast<std::size_t>(i * rows + row)];
    }
    double at(std::int64_t row, std::int64_t i) const {
        return values[static_cast<std::size_t>(i * rows + row)];
    }

    std::int64_t rows;
    std::int64_t columns;
    std::vector<double> values;
};

/// Q of the thin QR factorisation x = Q R, by Householder reflections with LAPACK's signs: a
/// diagonal element of R has the opposite sign of the leading element of the column that is
/// reflected. x has at least as many rows as columns. Where a column depends on the others, Q's
/// column is some orthonormal vector.
DenseColumns orthonormal(DenseColumns x);

/// The product x y.
DenseColumns product(const DenseColumns& x, const DenseColumns& y);
/// The Gram matrix xᵀ x.
DenseColumns gram(const DenseColumns& x);

/// Eigenvalues of a symmetric matrix in descending order, and its eigenvectors as columns, by
/// cyclic Jacobi rotations.
struct Eigen {
    std::vector<double> values;
    DenseColumns vectors;
};
Eigen eigen_of_symmetric(DenseColumns x);

}  // namespace loratrain
