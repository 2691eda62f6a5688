#include <cmath>
#include <limits>

#include "base/e4m3.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// Fp8Rows in a backend's memory.
class DeviceCodes {
  public:
    DeviceCodes(Backend& backend, std::int64_t rows, std::int64_t cols, std::int64_t ld)
        : codes_(backend, std::vector<std::uint8_t>(static_cast<std::size_t>(rows * ld), 0xaa)),
          scales_(backend, std::vector<float>(static_cast<std::size_t>(rows), -1.0F)),
          rows_(rows),
          cols_(cols),
          ld_(ld) {}
    DeviceCodes(Backend& backend, const std::vector<std::uint8_t>& codes,
                const std::vector<float>& scales, std::int64_t cols)
        : codes_(backend, codes),
          scales_(backend, scales),
          rows_(static_cast<std::int64_t>(scales.size())),
          cols_(cols),
          ld_(cols) {}

    Fp8Rows view() const { return {codes_.data(), scales_.data(), rows_, cols_, ld_}; }
    std::vector<std::uint8_t> codes() const { return codes_.download(); }
    std::vector<float> scales() const { return scales_.download(); }

  private:
    DeviceVector<std::uint8_t> codes_;
    DeviceVector<float> scales_;
    std::int64_t rows_;
    std::int64_t cols_;
    std::int64_t ld_;
};

bool equal_bits(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
}

class QuantizeTest : public BackendTest {
  protected:
    /// Codes and scales of a row by the formula.
    static RowCoding coding_of(const HostMatrix& x, std::int64_t row,
                               const std::vector<float>& column_scales) {
        float largest = 0.0F;
        for (std::int64_t col = 0; col < x.cols; ++col) {
            const float value = std::fabs(product(x, row, col, column_scales));
            if (!(value <= largest)) largest = std::isnan(largest) ? largest : value;
        }
        return row_coding(largest);
    }
    static float product(const HostMatrix& x, std::int64_t row, std::int64_t col,
                         const std::vector<float>& column_scales) {
        const auto value = static_cast<float>(x(row, col));
        return column_scales.empty() ? value : value * column_scales[static_cast<std::size_t>(col)];
    }

    void check(const HostMatrix& x, std::int64_t padding, const std::vector<float>& column_scales) {
        const std::int64_t ld = x.cols + padding;
        const DeviceMatrix device_x(backend(), x, padding);
        const DeviceVector<float> device_scales(backend(), column_scales);
        const DeviceCodes to(backend(), x.rows, x.cols, ld);
        backend().quantize_rows(
            {device_x.view(), column_scales.empty() ? nullptr : device_scales.data(), to.view()});
        const std::vector<std::uint8_t> codes = to.codes();
        const std::vector<float> scales = to.scales();
        for (std::int64_t row = 0; row < x.rows; ++row) {
            const RowCoding coding = coding_of(x, row, column_scales);
            ASSERT_TRUE(equal_bits(scales[static_cast<std::size_t>(row)], coding.scale))
                << row << ": " << scales[static_cast<std::size_t>(row)] << ", " << coding.scale;
            for (std::int64_t col = 0; col < ld; ++col) {
                const std::uint8_t expected =
                    col < x.cols ? to_e4m3(product(x, row, col, column_scales) * coding.inverse)
                                 : 0xaa;
                ASSERT_EQ(codes[static_cast<std::size_t>(row * ld + col)], expected)
                    << row << ", " << col << " of " << x.cols;
            }
        }
    }

    std::vector<float> some_scales(std::int64_t count) const {
        const HostMatrix values = reference::random_matrix(1, count, 9);
        std::vector<float> scales;
        for (const double value : values.values) {
            scales.push_back(static_cast<float>(std::exp2(4.0 * value)));
        }
        return scales;
    }
};

TEST_P(QuantizeTest, RowsOfAllLengths) {
    for (const std::int64_t cols : {1, 16, 17, 2048, 4096, 4104, 6144, 14336, 28672, 40000}) {
        const HostMatrix x = random(cols > 5000 ? 2 : 5, cols, static_cast<std::uint64_t>(cols));
        for (const std::int64_t padding : {0, 16, 3}) {
            check(x, padding, {});
            check(x, padding, some_scales(cols));
        }
    }
    check(random(0, 16, 1), 0, {});
}

TEST_P(QuantizeTest, RowsThatAreZeroTinyHugeOrNotFinite) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    HostMatrix x = random(9, 48, 2);
    for (std::int64_t col = 0; col < x.cols; ++col) {
        x(0, col) = 0.0;
        x(1, col) = std::ldexp(x(1, col), -120);
        x(2, col) = std::ldexp(1.0 + static_cast<double>(col % 2), -126);
        x(3, col) = std::ldexp(x(3, col), 127);
        x(4, col) = col == 7 ? 1.0 : std::ldexp(x(4, col), -12);
    }
    x(5, 0) = infinity;
    x(6, 47) = -infinity;
    x(7, 20) = std::numeric_limits<double>::quiet_NaN();
    x(7, 21) = infinity;
    for (double& value : x.values) value = reference::rounded_to(dtype(), value);
    check(x, 0, {});
    check(x, 1, {});
}

TEST_P(QuantizeTest, ARowDoesNotDependOnItsNeighbours) {
    const HostMatrix x = random(37, 272, 5);
    const DeviceMatrix device_x(backend(), x);
    const DeviceCodes together(backend(), 37, 272, 272);
    backend().quantize_rows({device_x.view(), nullptr, together.view()});
    const DeviceCodes alone(backend(), 1, 272, 272);
    backend().quantize_rows({device_x.view().row_range(30, 1), nullptr, alone.view()});
    const std::vector<std::uint8_t> all = together.codes();
    EXPECT_EQ(std::vector<std::uint8_t>(all.begin() + 30L * 272, all.begin() + 31L * 272),
              alone.codes());
    EXPECT_EQ(together.scales()[30], alone.scales()[0]);
}

TEST_P(QuantizeTest, Transposes) {
    for (const auto& [rows, cols] : {std::pair{1L, 1L}, {64L, 64L}, {65L, 190L}, {300L, 16L}}) {
        std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
        for (std::size_t i = 0; i < codes.size(); ++i) {
            codes[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
        }
        const DeviceCodes from(backend(), codes, std::vector<float>(static_cast<std::size_t>(rows)),
                               cols);
        const DeviceCodes to(backend(), cols, rows, rows + 2);
        backend().transpose_codes({to.view(), from.view()});
        const std::vector<std::uint8_t> result = to.codes();
        for (std::int64_t i = 0; i < cols; ++i) {
            for (std::int64_t j = 0; j < rows + 2; ++j) {
                ASSERT_EQ(result[static_cast<std::size_t>(i * (rows + 2) + j)],
                          j < rows ? codes[static_cast<std::size_t>(j * cols + i)] : 0xaa)
                    << i << ", " << j;
            }
        }
    }
}

/// Codes that an op makes of what it writes are those of quantize_rows.
class RowCodesTest : public QuantizeTest {
  protected:
    void expect_codes(const DeviceCodes& made, const TensorView& written,
                      const float* column_scales) {
        const DeviceCodes expected(backend(), written.rows, written.cols, written.cols);
        backend().quantize_rows({written, column_scales, expected.view()});
        EXPECT_EQ(made.codes(), expected.codes()) << written.cols;
        EXPECT_EQ(made.scales(), expected.scales()) << written.cols;
    }
};

TEST_P(RowCodesTest, OfNorms) {
    for (const std::int64_t cols : {24, 512, 520, 4096, 5120, 8192, 9000}) {
        const DeviceMatrix x(backend(), random(5, cols, 1));
        const DeviceMatrix weight(backend(), random(1, cols, 2));
        const DeviceMatrix plain(backend(), HostMatrix(5, cols), 8);
        const DeviceMatrix y(backend(), HostMatrix(5, cols), 8);
        const DeviceCodes codes(backend(), 5, cols, cols);
        backend().rms_norm({x.view(), weight.data(), 1e-5F, 1, plain.view()});
        backend().rms_norm({x.view(), weight.data(), 1e-5F, 1, y.view(), {codes.view()}});
        EXPECT_EQ(y.download().values, plain.download().values) << cols;
        expect_codes(codes, y.view(), nullptr);
    }
}

TEST_P(RowCodesTest, OfProducts) {
    for (const std::int64_t cols : {24, 4096, 14336, 16392, 20}) {
        const DeviceMatrix gate_up(backend(), random(3, 2 * cols, 1), 16);
        const TensorView gate = gate_up.view().col_range(0, cols);
        const TensorView up = gate_up.view().col_range(cols, cols);
        const DeviceMatrix plain(backend(), HostMatrix(3, cols), 8);
        const DeviceMatrix h(backend(), HostMatrix(3, cols), 8);
        const DeviceCodes codes(backend(), 3, cols, cols);
        backend().swiglu({gate, up, plain.view()});
        backend().swiglu({gate, up, h.view(), {codes.view()}});
        EXPECT_EQ(h.download().values, plain.download().values) << cols;
        expect_codes(codes, h.view(), nullptr);
    }
}

TEST_P(RowCodesTest, OfGradients) {
    for (const std::int64_t cols : {24, 4096, 8192, 14336, 16392, 20}) {
        const DeviceMatrix gate_up(backend(), random(3, 2 * cols, 1), 16);
        const TensorView gate = gate_up.view().col_range(0, cols);
        const TensorView up = gate_up.view().col_range(cols, cols);
        const DeviceMatrix dh(backend(), random(3, cols, 2));
        const DeviceMatrix plain(backend(), HostMatrix(3, 2 * cols), 8);
        const DeviceMatrix both(backend(), HostMatrix(3, 2 * cols), 8);
        const DeviceMatrix plain_h(backend(), HostMatrix(3, cols));
        const DeviceMatrix h(backend(), HostMatrix(3, cols));
        const DeviceVector<float> scales(backend(), some_scales(2 * cols));
        const DeviceCodes codes(backend(), 3, 2 * cols, 2 * cols);
        const auto halves = [&](const DeviceMatrix& of) {
            return std::pair{of.view().col_range(0, cols), of.view().col_range(cols, cols)};
        };
        const auto [plain_gate, plain_up] = halves(plain);
        backend().swiglu_backward({gate, up, dh.view(), plain_gate, plain_up, plain_h.view()});
        const auto [dgate, dup] = halves(both);
        backend().swiglu_backward(
            {gate, up, dh.view(), dgate, dup, h.view(), {codes.view(), scales.data()}});
        EXPECT_EQ(both.download().values, plain.download().values) << cols;
        EXPECT_EQ(h.download().values, plain_h.download().values) << cols;
        expect_codes(codes, both.view(), scales.data());
    }
}

class GemmFp8Test : public QuantizeTest {
  protected:
    void SetUp() override {
        if (dtype() == DType::f32 && backend().native_stream() != nullptr) {
            GTEST_SKIP() << "fp8 products on GPUs are in bf16";
        }
    }

    DeviceCodes random_codes(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
        std::vector<std::uint8_t> some(65521);
        for (std::size_t i = 0; i < some.size(); ++i) {
            some[i] = to_e4m3(64.0F * uniform_float(seed, i) - 32.0F);
        }
        std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = some[i % some.size()];
        std::vector<float> scales;
        for (std::int64_t row = 0; row < rows; ++row) {
            scales.push_back(0.001F + uniform_float(seed + 1, static_cast<std::uint64_t>(row)));
        }
        return {backend(), codes, scales, cols};
    }

    /// Of C every so manieth element.
    void check(std::int64_t m, std::int64_t n, std::int64_t k, float beta, bool fast,
               std::int64_t padding = 0, std::int64_t every = 1) {
        const DeviceCodes a = random_codes(m, k, 11);
        const DeviceCodes b = random_codes(n, k, 12);
        const HostMatrix before = random(m, n, 13);
        const HostMatrix junk(m, n, std::numeric_limits<double>::quiet_NaN());
        const DeviceMatrix c(backend(), beta == 0.0F ? junk : before, padding);
        backend().gemm_fp8({a.view(), b.view(), c.view(), beta, fast});
        const HostMatrix got = c.download();
        const DeviceMatrix added(backend(), before, padding + 16);
        const DeviceMatrix apart(backend(), junk, padding);
        backend().gemm_fp8({a.view(), b.view(), apart.view(), beta, fast, added.view()});
        const HostMatrix got_apart = apart.download();
        const std::vector<std::uint8_t> a_codes = a.codes();
        const std::vector<std::uint8_t> b_codes = b.codes();
        const std::vector<float> a_scales = a.scales();
        const std::vector<float> b_scales = b.scales();
        std::vector<double> picked;
        std::vector<double> expected;
        for (std::int64_t at = 0; at < m * n; at += every) {
            const std::int64_t i = at / n;
            const std::int64_t j = at % n;
            double sum = 0.0;
            for (std::int64_t l = 0; l < k; ++l) {
                sum +=
                    static_cast<double>(from_e4m3(a_codes[static_cast<std::size_t>(i * k + l)])) *
                    static_cast<double>(from_e4m3(b_codes[static_cast<std::size_t>(j * k + l)]));
            }
            sum *= static_cast<double>(a_scales[static_cast<std::size_t>(i)]) *
                   static_cast<double>(b_scales[static_cast<std::size_t>(j)]);
            if (beta != 0.0F) sum += static_cast<double>(beta) * before(i, j);
            picked.insert(picked.end(), {got(i, j), got_apart(i, j)});
            expected.insert(expected.end(), {sum, sum});
        }
        const Tolerance rounding = tolerance_of(dtype());
        expect_close(picked, expected, {std::max(rounding.relative, fast ? 1e-2 : 1e-3)},
                     cat("gemm_fp8 ", m, "x", n, "x", k, ", beta ", beta, fast ? ", fast" : ""));
    }
};

TEST_P(GemmFp8Test, AgreesWithLoops) {
    for (const bool fast : {false, true}) {
        for (const float beta : {0.0F, 1.0F}) {
            for (const std::int64_t m : {1, 7, 16, 37, 129}) {
                check(m, 48, 32, beta, fast);
                check(m, 144, 272, beta, fast, 16);
            }
            check(5, 16, 2048, beta, fast);
        }
    }
    check(0, 16, 32, 0.0F, false);
}

TEST_P(GemmFp8Test, ShapesOfALargeModel) {
    if (backend().native_stream() == nullptr) GTEST_SKIP() << "long on a CPU";
    struct Shape {
        std::int64_t n, k;
    };
    for (const Shape& shape : {Shape{6144, 4096},
                               {4096, 4096},
                               {28672, 4096},
                               {4096, 14336},
                               {14336, 4096},
                               {4096, 28672},
                               {4096, 6144}}) {
        for (const std::int64_t m : {1, 333}) {
            for (const bool fast : {false, true}) {
                check(m, shape.n, shape.k, fast ? 0.0F : 1.0F, fast, 0, m * shape.n / 61 + 1);
            }
        }
    }
}

TEST_P(GemmFp8Test, ARowThatIsNotFiniteStaysAlone) {
    HostMatrix x = random(20, 64, 3);
    x(13, 5) = std::numeric_limits<double>::infinity();
    const DeviceMatrix device_x(backend(), x);
    const DeviceCodes a(backend(), 20, 64, 64);
    backend().quantize_rows({device_x.view(), nullptr, a.view()});
    const DeviceCodes b = random_codes(32, 64, 4);
    const DeviceMatrix c(backend(), HostMatrix(20, 32));
    backend().gemm_fp8({a.view(), b.view(), c.view()});
    const HostMatrix got = c.download();
    for (std::int64_t i = 0; i < 20; ++i) {
        for (std::int64_t j = 0; j < 32; ++j) EXPECT_EQ(std::isnan(got(i, j)), i == 13) << i;
    }
}

LORATRAIN_FOR_EACH_BACKEND(QuantizeTest);
LORATRAIN_FOR_EACH_BACKEND(RowCodesTest);
LORATRAIN_FOR_EACH_BACKEND(GemmFp8Test);

}  // namespace
}  // namespace loratrain
