#include "reference/gemm.h"

#include <cmath>
#include <limits>

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class GemmTest : public BackendTest {
  protected:
    struct Case {
        std::int64_t m, n, k;
        bool transpose_a, transpose_b;
        float alpha, beta;
        std::int64_t padding;
    };

    static HostMatrix not_numbers(std::int64_t rows, std::int64_t cols) {
        return {rows, cols, std::numeric_limits<double>::quiet_NaN()};
    }

    void check(const Case& c) {
        const HostMatrix a = random(c.transpose_a ? c.k : c.m, c.transpose_a ? c.m : c.k, 1);
        const HostMatrix b = random(c.transpose_b ? c.n : c.k, c.transpose_b ? c.k : c.n, 2);
        const HostMatrix before = random(c.m, c.n, 3);
        const DeviceMatrix device_a(backend(), a, c.padding);
        const DeviceMatrix device_b(backend(), b, c.padding);
        const DeviceMatrix device_c(backend(), before, c.padding);
        backend().gemm({device_a.view(), device_b.view(), device_c.view(), c.transpose_a,
                        c.transpose_b, c.alpha, c.beta});
        const HostMatrix expected =
            reference::gemm(c.alpha, c.transpose_a ? reference::transposed(a) : a,
                            c.transpose_b ? reference::transposed(b) : b, c.beta, before);
        const std::string name =
            cat("gemm ", c.m, "x", c.n, "x", c.k, " ", c.transpose_a, c.transpose_b);
        expect_close(device_c, expected, name);
        if (c.beta == 0.0F) return;
        const DeviceMatrix added(backend(), before, c.padding + 8);
        const DeviceMatrix apart(backend(), not_numbers(c.m, c.n), c.padding);
        backend().gemm({device_a.view(), device_b.view(), apart.view(), c.transpose_a,
                        c.transpose_b, c.alpha, c.beta, added.view()});
        expect_close(apart, expected, name + " with D apart");
        expect_close(added, before, "D");
    }
};

TEST_P(GemmTest, AgreesWithLoopsForEveryTransposition) {
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            check({37, 53, 29, transpose_a, transpose_b, 1.0F, 0.0F, 0});
            check({300, 810, 65, transpose_a, transpose_b, 0.5F, 1.0F, 3});
            check({1, 1000, 17, transpose_a, transpose_b, 1.0F, 0.25F, 64});
            check({257, 1, 40, transpose_a, transpose_b, -1.0F, 1.0F, 1});
            check({9, 24, 2500, transpose_a, transpose_b, 1.0F, 0.5F, 8});
        }
    }
}

TEST_P(GemmTest, RowsThatShareAnAlgorithm) {
    for (const float beta : {0.0F, 1.0F}) {
        for (const std::int64_t rows : {961, 1024, 1000, 449, 500, 512, 65, 128}) {
            check({rows, 136, 24, false, false, 1.0F, beta, 8});
            check({rows, 40, 72, false, true, 1.0F, beta, 0});
        }
        for (const std::int64_t rows : {65, 128}) check({24, 40, rows, true, false, 1.0F, beta, 8});
    }
}

// As in the gradient of a loss over a large vocabulary: one term far above all others, which are
// lost where each is added to it alone.
TEST_P(GemmTest, SumsTakeInManySmallTerms) {
    if (backend().compute_dtype() != DType::f32) GTEST_SKIP() << "sums of fp32 values";
    const std::int64_t k = 50000;
    HostMatrix a(3, k, std::ldexp(1.0, -25));
    for (std::int64_t i = 0; i < a.rows; ++i) a(i, 0) = 1.0;
    const HostMatrix b(k, 40, 1.0);
    const HostMatrix junk(3, 40, 0.0);
    const DeviceMatrix device_a(backend(), a);
    const DeviceMatrix device_b(backend(), b);
    const DeviceMatrix device_c(backend(), junk);
    backend().gemm({device_a.view(), device_b.view(), device_c.view()});
    const double expected = 1.0 + static_cast<double>(k - 1) * std::ldexp(1.0, -25);
    const HostMatrix sums = device_c.download();
    for (const double sum : sums.values) EXPECT_NEAR(sum, expected, 1e-4);
}

TEST_P(GemmTest, KeepsSumsInFp32) {
    const HostMatrix a = random(70, 96, 1);
    const HostMatrix b = random(40, 96, 2);
    const DeviceMatrix device_a(backend(), a, 8);
    const DeviceMatrix device_b(backend(), b);
    const DeviceMatrix c(backend(), not_numbers(70, 40), 4, DType::f32);
    backend().gemm({device_a.view(), device_b.view(), c.view(), false, true});
    const HostMatrix expected =
        reference::gemm(1.0F, a, reference::transposed(b), 0.0F, c.download());
    expect_close(c.download().values, expected.values, tolerance_of(DType::f32), "sums in fp32");
}

TEST_P(GemmTest, EmptyShapes) {
    check({0, 5, 3, false, true, 1.0F, 0.0F, 0});
    check({5, 0, 3, false, false, 1.0F, 0.0F, 0});
    check({5, 4, 0, false, true, 1.0F, 0.5F, 2});
    check({5, 4, 0, false, true, 1.0F, 0.0F, 2});
}

TEST_P(GemmTest, BetaZeroOverwritesNotANumber) {
    for (const std::int64_t n : {3, 900}) {
        for (const std::int64_t k : {0, 8}) {
            const HostMatrix a = random(70, k, 1);
            const HostMatrix b = random(n, k, 2);
            const HostMatrix junk = not_numbers(70, n);
            const DeviceMatrix device_a(backend(), a);
            const DeviceMatrix device_b(backend(), b);
            const DeviceMatrix device_c(backend(), junk);
            backend().gemm({device_a.view(), device_b.view(), device_c.view(), false, true});
            expect_close(device_c, reference::gemm(1.0, a, reference::transposed(b), 0.0, junk),
                         "gemm over NaN");
        }
    }
}

TEST_P(GemmTest, ColumnRangesOfAWiderMatrix) {
    const HostMatrix wide = random(40, 96, 4);
    const HostMatrix b = random(32, 24, 5);
    const DeviceMatrix device_wide(backend(), wide);
    const DeviceMatrix device_b(backend(), b);
    backend().gemm({device_wide.view().col_range(8, 24), device_b.view(),
                    device_wide.view().col_range(64, 32), false, true});
    HostMatrix a(40, 24);
    for (std::int64_t i = 0; i < 40; ++i) {
        for (std::int64_t j = 0; j < 24; ++j) a(i, j) = wide(i, 8 + j);
    }
    const HostMatrix c = reference::gemm(1.0, a, reference::transposed(b), 0.0, {});
    HostMatrix expected = wide;
    for (std::int64_t i = 0; i < 40; ++i) {
        for (std::int64_t j = 0; j < 32; ++j) expected(i, 64 + j) = c(i, j);
    }
    expect_close(device_wide, expected, "gemm inside a wider matrix");
}

LORATRAIN_FOR_EACH_BACKEND(GemmTest);

}  // namespace
}  // namespace loratrain
