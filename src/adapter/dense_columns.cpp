#include "adapter/dense_columns.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr int most_passes = 60;

double dot(std::span<const double> x, std::span<const double> y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

void add_scaled(std::span<double> y, double factor, std::span<const double> x) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += factor * x[i];
}

/// v of I - tau v vᵀ, v_0 = 1, which turns x into a multiple of the first unit vector; in place,
/// the multiple is of no use here. Returns tau.
double make_reflection(std::span<double> x) {
    const double below = dot(x.subspan(1), x.subspan(1));
    const double alpha = x.front();
    x.front() = 1.0;
    if (below == 0.0) return 0.0;
    const double beta = -std::copysign(std::sqrt(alpha * alpha + below), alpha);
    for (double& value : x.subspan(1)) value /= alpha - beta;
    return (beta - alpha) / beta;
}

void reflect(std::span<const double> v, double tau, std::span<double> x) {
    if (tau != 0.0) add_scaled(x, -tau * dot(v, x), v);
}

/// Makes x[p, q] zero; the rotation is applied to the vectors as well.
void rotate(DenseColumns& x, DenseColumns& vectors, std::int64_t p, std::int64_t q) {
    const double theta = (x.at(q, q) - x.at(p, p)) / (2.0 * x.at(p, q));
    const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::hypot(theta, 1.0));
    const double c = 1.0 / std::hypot(t, 1.0);
    const double s = t * c;
    const auto turn = [&](double& a, double& b) {
        const double old = a;
        a = c * old - s * b;
        b = s * old + c * b;
    };
    for (std::int64_t i = 0; i < x.rows; ++i) turn(x.at(i, p), x.at(i, q));
    for (std::int64_t i = 0; i < x.rows; ++i) turn(x.at(p, i), x.at(q, i));
    for (std::int64_t i = 0; i < x.rows; ++i) turn(vectors.at(i, p), vectors.at(i, q));
}

/// Whether any pair was worth a rotation.
bool jacobi_pass(DenseColumns& x, DenseColumns& vectors, double negligible) {
    bool any = false;
    for (std::int64_t p = 0; p < x.rows; ++p) {
        for (std::int64_t q = p + 1; q < x.rows; ++q) {
            if (std::abs(x.at(p, q)) <= negligible) continue;
            rotate(x, vectors, p, q);
            any = true;
        }
    }
    return any;
}

}  // namespace

DenseColumns orthonormal(DenseColumns x) {
    LORATRAIN_CHECK(x.rows >= x.columns, x.columns, " columns of ", x.rows, " values");
    std::vector<double> tau(static_cast<std::size_t>(x.columns));
    const auto below = [](std::span<double> column, std::int64_t k) {
        return column.subspan(static_cast<std::size_t>(k));
    };
    for (std::int64_t k = 0; k < x.columns; ++k) {
        const std::span<double> v = below(x.column(k), k);
        tau[static_cast<std::size_t>(k)] = make_reflection(v);
        for (std::int64_t j = k + 1; j < x.columns; ++j) {
            reflect(v, tau[static_cast<std::size_t>(k)], below(x.column(j), k));
        }
    }
    DenseColumns q(x.rows, x.columns);
    for (std::int64_t k = x.columns - 1; k >= 0; --k) {
        q.at(k, k) = 1.0;
        for (std::int64_t j = k; j < x.columns; ++j) {
            reflect(below(x.column(k), k), tau[static_cast<std::size_t>(k)], below(q.column(j), k));
        }
    }
    return q;
}

DenseColumns product(const DenseColumns& x, const DenseColumns& y) {
    DenseColumns result(x.rows, y.columns);
    for (std::int64_t j = 0; j < y.columns; ++j) {
        for (std::int64_t k = 0; k < x.columns; ++k) {
            add_scaled(result.column(j), y.at(k, j), x.column(k));
        }
    }
    return result;
}

DenseColumns gram(const DenseColumns& x) {
    DenseColumns result(x.columns, x.columns);
    for (std::int64_t j = 0; j < x.columns; ++j) {
        for (std::int64_t i = 0; i <= j; ++i) {
            result.at(i, j) = result.at(j, i) = dot(x.column(i), x.column(j));
        }
    }
    return result;
}

Eigen eigen_of_symmetric(DenseColumns x) {
    DenseColumns vectors(x.rows, x.rows);
    double largest = 0.0;
    for (std::int64_t i = 0; i < x.rows; ++i) {
        vectors.at(i, i) = 1.0;
        largest = std::max(largest, std::abs(x.at(i, i)));
    }
    const double negligible = 1e-17 * largest;
    for (int i = 0; i < most_passes && jacobi_pass(x, vectors, negligible); ++i) {
    }
    std::vector<std::int64_t> order(static_cast<std::size_t>(x.rows));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t i, std::int64_t j) { return x.at(i, i) > x.at(j, j); });
    Eigen result{{}, DenseColumns(x.rows, x.rows)};
    for (std::int64_t j = 0; j < x.rows; ++j) {
        const std::int64_t from = order[static_cast<std::size_t>(j)];
        result.values.push_back(x.at(from, from));
        std::copy_n(vectors.column(from).data(), x.rows, result.vectors.column(j).data());
    }
    return result;
}

}  // namespace loratrain
