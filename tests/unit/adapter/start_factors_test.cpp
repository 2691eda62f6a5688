#include "adapter/start_factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "adapter/dense_columns.h"
#include "backend/make_backend.h"
#include "base/rng.h"

namespace loratrain::test {
namespace {

std::vector<float> random_matrix(std::int64_t count, std::uint64_t key) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = normal_float(key, i);
    return values;
}

/// U diag(s) Vᵀ with orthonormal U and V.
std::vector<float> with_singular_values(const LinearShape& shape, const std::vector<double>& s) {
    const auto basis = [&](std::int64_t rows, std::uint64_t key) {
        DenseColumns x(rows, std::ssize(s));
        for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = normal_float(key, i);
        return orthonormal(x);
    };
    const DenseColumns u = basis(shape.out, 1);
    const DenseColumns v = basis(shape.in, 2);
    std::vector<float> w;
    for (std::int64_t row = 0; row < shape.out; ++row) {
        for (std::int64_t k = 0; k < shape.in; ++k) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < std::ssize(s); ++i) {
                sum += u.at(row, i) * s[static_cast<std::size_t>(i)] * v.at(k, i);
            }
            w.push_back(static_cast<float>(sum));
        }
    }
    return w;
}

/// scaling B A of the first `count` of its columns and rows.
std::vector<float> expanded(const StartFactors& factors, const LinearShape& shape, double scaling) {
    const std::int64_t rank = std::ssize(factors.a) / shape.in;
    std::vector<float> result;
    for (std::int64_t row = 0; row < shape.out; ++row) {
        for (std::int64_t k = 0; k < shape.in; ++k) {
            double sum = 0.0;
            for (std::int64_t i = 0; i < rank; ++i) {
                sum +=
                    static_cast<double>(factors.b[static_cast<std::size_t>(i * shape.out + row)]) *
                    factors.a[static_cast<std::size_t>(i * shape.in + k)];
            }
            result.push_back(static_cast<float>(scaling * sum));
        }
    }
    return result;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
    }
    return largest;
}

StartFactors factors_of(const StartRule& rule, const LinearShape& shape,
                        const std::vector<float>& w, int threads = 1) {
    const auto host = make_backend("cpu", {threads});
    return start_factors(rule, shape, w, *host);
}

StartRule rule_of(Initial method, std::int64_t rank, double scaling) {
    StartRule rule{method, std::nullopt};
    rule.rank = rank;
    rule.scaling = scaling;
    rule.key = 7;
    return rule;
}

TEST(StartFactors, PissaTakesTheLargestSingularValues) {
    const std::vector<double> s{9, 7, 5, 3, 2, 1};
    const std::vector<double> largest{9, 7, 5};
    for (const LinearShape shape :
         {LinearShape{40, 23}, LinearShape{23, 40}, LinearShape{6, 6}, LinearShape{300, 270}}) {
        const StartFactors factors =
            factors_of(rule_of(Initial::pissa, 3, 2.0), shape, with_singular_values(shape, s));
        EXPECT_LE(
            largest_difference(expanded(factors, shape, 2.0), with_singular_values(shape, largest)),
            5e-6)
            << shape.out;
        for (std::size_t i = 0; i < 3; ++i) {
            double of_a = 0.0;
            for (std::int64_t k = 0; k < shape.in; ++k) {
                const float value =
                    factors.a[i * static_cast<std::size_t>(shape.in) + static_cast<std::size_t>(k)];
                of_a += static_cast<double>(value) * value;
            }
            EXPECT_NEAR(of_a, largest[i] / 2.0, 1e-5) << "A and B share a singular value";
        }
    }
}

TEST(StartFactors, AllSingularValuesGiveTheWeights) {
    for (const LinearShape shape :
         {LinearShape{1, 9}, LinearShape{9, 1}, LinearShape{1, 1}, LinearShape{17, 33}}) {
        const std::vector<float> w = random_matrix(shape.in * shape.out, 3);
        const std::int64_t rank = std::min(shape.in, shape.out);
        const StartFactors factors = factors_of(rule_of(Initial::pissa, rank, 0.5), shape, w);
        EXPECT_LE(largest_difference(expanded(factors, shape, 0.5), w), 1e-5) << shape.out;
    }
}

/// Larger than what is decomposed at once, with values that fall slowly.
TEST(StartFactors, PissaIteratesUntilItIsExact) {
    const LinearShape shape{330, 290};
    std::vector<double> s;
    for (int i = 0; i < 290; ++i) s.push_back(10.0 / (1.0 + 0.1 * i));
    const std::vector<double> largest(s.begin(), s.begin() + 4);
    const StartFactors factors =
        factors_of(rule_of(Initial::pissa, 4, 1.0), shape, with_singular_values(shape, s));
    EXPECT_LE(
        largest_difference(expanded(factors, shape, 1.0), with_singular_values(shape, largest)),
        1e-4);
}

TEST(StartFactors, IterationsComeNearIt) {
    const LinearShape shape{50, 70};
    std::vector<double> s;
    for (int i = 0; i < 50; ++i) s.push_back(10.0 / (1.0 + i));
    const std::vector<float> w = with_singular_values(shape, s);
    const std::vector<float> want =
        expanded(factors_of(rule_of(Initial::pissa, 5, 1.0), shape, w), shape, 1.0);
    const auto error = [&](int iterations) {
        StartRule rule = rule_of(Initial::pissa, 5, 1.0);
        rule.iterations = iterations;
        return largest_difference(expanded(factors_of(rule, shape, w), shape, 1.0), want);
    };
    EXPECT_GT(error(0), 1e-2);
    EXPECT_LT(error(40), 1e-4);
}

TEST(StartFactors, OloraTakesQAndR) {
    for (const LinearShape shape : {LinearShape{40, 23}, LinearShape{23, 40}, LinearShape{5, 5}}) {
        const std::vector<float> w = random_matrix(shape.in * shape.out, 4);
        constexpr std::int64_t rank = 4;
        const StartFactors factors = factors_of(rule_of(Initial::olora, rank, 3.0), shape, w);
        DenseColumns b(shape.out, rank);
        std::copy(factors.b.begin(), factors.b.end(), b.values.begin());
        const DenseColumns of_b = gram(b);
        const std::vector<float> product = expanded(factors, shape, 1.0);
        for (std::int64_t i = 0; i < rank; ++i) {
            for (std::int64_t j = 0; j < rank; ++j) {
                EXPECT_NEAR(of_b.at(i, j), i == j ? 1.0 : 0.0, 1e-6);
                if (j >= i) continue;
                EXPECT_EQ(factors.a[static_cast<std::size_t>(i * shape.in + j)], 0.0F);
            }
            for (std::int64_t row = 0; row < shape.out; ++row) {
                const auto at = static_cast<std::size_t>(row * shape.in + i);
                EXPECT_NEAR(product[at], w[at], 1e-5) << "the first columns are Q R's";
            }
        }
    }
}

TEST(StartFactors, SignsAreLapacks) {
    const StartFactors factors =
        factors_of(rule_of(Initial::olora, 1, 1.0), {2, 2}, {3.0F, 1.0F, 4.0F, 2.0F});
    EXPECT_NEAR(factors.a[0], -5.0F, 1e-6);
    EXPECT_NEAR(factors.b[0], -0.6F, 1e-6);
    EXPECT_NEAR(factors.b[1], -0.8F, 1e-6);
}

TEST(StartFactors, WeightsOfLowRankGiveFiniteFactors) {
    for (const Initial method : {Initial::pissa, Initial::olora}) {
        const StartFactors factors =
            factors_of(rule_of(method, 3, 1.0), {8, 9}, std::vector<float>(72, 0.0F));
        for (const float value : expanded(factors, {8, 9}, 1.0)) EXPECT_EQ(value, 0.0F);
        for (const float value : factors.a) EXPECT_TRUE(std::isfinite(value));
        for (const float value : factors.b) EXPECT_TRUE(std::isfinite(value));
    }
    const std::vector<float> ones(8 * 9, 1.0F);
    const StartFactors factors = factors_of(rule_of(Initial::pissa, 3, 1.0), {8, 9}, ones);
    EXPECT_LE(largest_difference(expanded(factors, {8, 9}, 1.0), ones), 1e-6);
}

TEST(StartFactors, ThreadsChangeNothing) {
    const LinearShape shape{270, 1100};
    const std::vector<float> w = random_matrix(shape.in * shape.out, 5);
    StartRule rule = rule_of(Initial::pissa, 3, 1.0);
    rule.iterations = 2;
    const StartFactors one = factors_of(rule, shape, w, 1);
    const StartFactors three = factors_of(rule, shape, w, 3);
    EXPECT_EQ(one.a, three.a);
    EXPECT_EQ(one.b, three.b);
}

}  // namespace
}  // namespace loratrain::test
