#include "adapter/start_factors.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "adapter/dense_columns.h"
#include "base/error.h"
#include "base/rng.h"

namespace loratrain {

namespace {

constexpr std::int64_t exact_side = 256;
constexpr std::int64_t least_more_columns = 16;  ///< than wanted, which speeds iterations up
constexpr int most_iterations = 300;
constexpr int iterations_per_check = 8;
constexpr double tolerance = 1e-6;

/// W or its transpose, to multiply with.
class Weights {
  public:
    Weights(std::span<const float> w, const LinearShape& shape, Backend& host)
        : w_(matrix(const_cast<float*>(w.data()), DType::f32, shape.out, shape.in)), host_(host) {}

    std::int64_t rows() const { return transposed_ ? w_.cols : w_.rows; }
    std::int64_t columns() const { return transposed_ ? w_.rows : w_.cols; }
    Weights transposed() const {
        Weights other = *this;
        other.transposed_ = !transposed_;
        return other;
    }
    DenseColumns times(const DenseColumns& x) const {
        std::vector<float> input(x.values.size());
        for (std::int64_t i = 0; i < x.rows; ++i) {
            for (std::int64_t j = 0; j < x.columns; ++j) {
                input[static_cast<std::size_t>(i * x.columns + j)] = static_cast<float>(x.at(i, j));
            }
        }
        std::vector<float> output(static_cast<std::size_t>(rows() * x.columns));
        Gemm op;
        op.a = w_;
        op.b = matrix(input.data(), DType::f32, x.rows, x.columns);
        op.c = matrix(output.data(), DType::f32, rows(), x.columns);
        op.transpose_a = transposed_;
        host_.gemm(op);
        DenseColumns result(rows(), x.columns);
        for (std::int64_t i = 0; i < result.rows; ++i) {
            for (std::int64_t j = 0; j < result.columns; ++j) {
                result.at(i, j) = output[static_cast<std::size_t>(i * x.columns + j)];
            }
        }
        return result;
    }

  private:
    TensorView w_;
    Backend& host_;
    bool transposed_ = false;
};

struct Triplets {
    DenseColumns u;
    std::vector<double> s;
    DenseColumns v;
};

DenseColumns random_columns(std::int64_t rows, std::int64_t columns, std::uint64_t key) {
    DenseColumns x(rows, columns);
    for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = normal_float(key, i);
    return x;
}

/// The triplets of the part of W whose columns q spans.
Triplets triplets_within(const Weights& w, const DenseColumns& q) {
    const DenseColumns y = w.transposed().times(q);
    const Eigen eigen = eigen_of_symmetric(gram(y));
    Triplets result{product(q, eigen.vectors), {}, product(y, eigen.vectors)};
    for (std::int64_t i = 0; i < q.columns; ++i) {
        const double s = std::sqrt(std::max(0.0, eigen.values[static_cast<std::size_t>(i)]));
        result.s.push_back(s);
        const bool negligible = s <= 1e-12 * result.s.front();
        for (double& value : result.v.column(i)) value = negligible ? 0.0 : value / s;
    }
    return result;
}

/// Of the first `rank`, given W v: the largest |W v - S u| over the largest S.
double worst_residual(const Triplets& triplets, const DenseColumns& wv, std::int64_t rank) {
    double worst = 0.0;
    for (std::int64_t i = 0; i < rank; ++i) {
        double sum = 0.0;
        for (std::int64_t row = 0; row < wv.rows; ++row) {
            const double off =
                wv.at(row, i) - triplets.s[static_cast<std::size_t>(i)] * triplets.u.at(row, i);
            sum += off * off;
        }
        worst = std::max(worst, std::sqrt(sum));
    }
    return worst / std::max(triplets.s.front(), 1e-300);
}

Triplets largest_triplets(const Weights& w, std::int64_t rank, std::uint64_t key) {
    const std::int64_t side = std::min(w.rows(), w.columns());
    const bool exact = side <= exact_side;
    const std::int64_t columns =
        exact ? side : std::min(side, rank + std::max(rank, least_more_columns));
    DenseColumns q = orthonormal(w.times(random_columns(w.columns(), columns, key)));
    for (int i = 1; !exact && i < most_iterations; ++i) {
        if (i % iterations_per_check != 0) {
            q = orthonormal(w.times(orthonormal(w.transposed().times(q))));
            continue;
        }
        Triplets triplets = triplets_within(w, q);
        DenseColumns wv = w.times(triplets.v);
        if (worst_residual(triplets, wv, rank) <= tolerance) return triplets;
        q = orthonormal(std::move(wv));
    }
    return triplets_within(w, q);
}

/// torch.svd_lowrank with q = rank.
Triplets randomised_triplets(const Weights& w, std::int64_t rank, int iterations,
                             std::uint64_t key) {
    if (w.rows() < w.columns()) {
        Triplets other = randomised_triplets(w.transposed(), rank, iterations, key);
        return {std::move(other.v), std::move(other.s), std::move(other.u)};
    }
    DenseColumns q = orthonormal(w.times(random_columns(w.columns(), rank, key)));
    for (int i = 0; i < iterations; ++i) {
        q = orthonormal(w.times(orthonormal(w.transposed().times(q))));
    }
    return triplets_within(w, q);
}

StartFactors pissa_factors(const StartRule& rule, const Weights& w) {
    const Triplets triplets = rule.iterations
                                  ? randomised_triplets(w, rule.rank, *rule.iterations, rule.key)
                                  : largest_triplets(w, rule.rank, rule.key);
    StartFactors factors;
    for (std::int64_t i = 0; i < rule.rank; ++i) {
        const double root = std::sqrt(triplets.s[static_cast<std::size_t>(i)] / rule.scaling);
        for (const double value : triplets.v.column(i)) {
            factors.a.push_back(static_cast<float>(root * value));
        }
        for (const double value : triplets.u.column(i)) {
            factors.b.push_back(static_cast<float>(root * value));
        }
    }
    return factors;
}

/// Q's columns depend on the first of W's alone.
StartFactors olora_factors(const StartRule& rule, std::span<const float> w,
                           const Weights& weights) {
    DenseColumns first(weights.rows(), rule.rank);
    for (std::int64_t row = 0; row < first.rows; ++row) {
        for (std::int64_t i = 0; i < rule.rank; ++i) {
            first.at(row, i) = w[static_cast<std::size_t>(row * weights.columns() + i)];
        }
    }
    const DenseColumns q = orthonormal(std::move(first));
    const DenseColumns r = weights.transposed().times(q);
    StartFactors factors;
    for (std::int64_t i = 0; i < rule.rank; ++i) {
        for (std::int64_t k = 0; k < r.rows; ++k) {
            factors.a.push_back(k < i ? 0.0F : static_cast<float>(r.at(k, i)));
        }
        for (const double value : q.column(i)) factors.b.push_back(static_cast<float>(value));
    }
    return factors;
}

}  // namespace

StartFactors start_factors(const StartRule& rule, const LinearShape& shape,
                           std::span<const float> w, Backend& host) {
    LORATRAIN_CHECK(w.size() == static_cast<std::size_t>(shape.out * shape.in) &&
                        rule.rank <= std::min(shape.out, shape.in),
                    "rank ", rule.rank, " of weights [", shape.out, ", ", shape.in, "]");
    const Weights weights(w, shape, host);
    return rule.method == Initial::olora ? olora_factors(rule, w, weights)
                                         : pissa_factors(rule, weights);
}

}  // namespace loratrain
