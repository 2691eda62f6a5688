#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace loratrain {

/// A dense fp64 matrix by columns [host].
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

/// Q of x = Q R, as many columns, by Householder reflections with the signs of LAPACK (R's diagonal
/// against that of what it reflects). At least as many rows as columns; columns that depend on
/// others get some orthonormal vector.
DenseColumns orthonormal(DenseColumns x);

/// x y.
DenseColumns product(const DenseColumns& x, const DenseColumns& y);
/// xᵀ x.
DenseColumns gram(const DenseColumns& x);

/// Of a symmetric matrix by cyclic Jacobi rotations: eigenvalues, descending, and their
/// eigenvectors as columns.
struct Eigen {
    std::vector<double> values;
    DenseColumns vectors;
};
Eigen eigen_of_symmetric(DenseColumns x);

}  // namespace loratrain
