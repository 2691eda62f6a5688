#include "base/rng.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

class RandomTest : public BackendTest {};

TEST_P(RandomTest, FillsEqualBitsOnEveryBackend) {
    for (const DType type : {DType::f32, DType::bf16}) {
        for (const auto& [rows, cols, padding] :
             std::vector<std::array<std::int64_t, 3>>{{0, 8, 0},
                                                      {1, 1, 0},
                                                      {1, 64, 0},
                                                      {5, 7, 2},
                                                      {37, 128, 16},
                                                      {37, 128, 3},
                                                      {300, 1000, 24}}) {
            for (const RandomMatrix random :
                 {RandomMatrix{0xfedcba9876543210ULL, 1.0F, 0.1F}, RandomMatrix{7, 0.0F, 0.3F}}) {
                std::vector<float> values(static_cast<std::size_t>(rows * cols));
                fill_random_rows(random, 0, matrix(values.data(), DType::f32, rows, cols));
                const HostMatrix zeros(rows, cols);
                const DeviceMatrix target(backend(), zeros, padding, type);
                backend().fill_random({target.view(), random});
                HostMatrix expected(rows, cols);
                for (std::size_t i = 0; i < values.size(); ++i) {
                    expected.values[i] =
                        type == DType::f32 ? values[i] : to_float(to_bfloat16(values[i]));
                }
                EXPECT_EQ(target.download().values, expected.values)
                    << to_string(type) << " " << rows << " x " << cols << " + " << padding;
            }
        }
    }
}

TEST_P(RandomTest, DrawsEqualBitsOfTheStreamOnEveryBackend) {
    struct Case {
        std::int64_t rows, cols, first, stride;
    };
    constexpr std::int64_t far = (std::int64_t{1} << 34) - 40;
    for (const Case& c :
         {Case{1, 0, 0, 0}, Case{1, 1, 0, 1}, Case{1, 40000, 0, 40000}, Case{8, 512, 512, 1024},
          Case{8, 512, 513, 1024}, Case{3, 7, 14, 21}, Case{2, 20000, far, 20000}}) {
        const auto count = static_cast<std::size_t>(c.rows * c.cols);
        const DeviceVector<float> values(backend(), std::vector<float>(count + 1, -7.0F));
        backend().draw_uniform({values.data(), c.rows, c.cols, c.first, c.stride, 9, 0.3F});
        std::vector<float> expected;
        for (std::int64_t i = 0; i < c.rows; ++i) {
            for (std::int64_t j = 0; j < c.cols; ++j) {
                const auto place = static_cast<std::uint64_t>(c.first + i * c.stride + j);
                const double unit = 2.0 * uniform_float(9, place) - 1.0;
                expected.push_back(static_cast<float>(unit * static_cast<double>(0.3F)));
            }
        }
        expected.push_back(-7.0F);
        EXPECT_EQ(values.download(), expected) << c.rows << " x " << c.cols << " from " << c.first;
    }
}

TEST_P(RandomTest, NoiseDependsOnSampleAndPositionAlone) {
    const std::vector<std::int32_t> positions{0, 1, 2, 1};
    const std::vector<std::int32_t> samples{5, 5, 5, 70000};
    const DeviceVector<std::int32_t> device_positions(backend(), positions);
    const DeviceVector<std::int32_t> device_samples(backend(), samples);
    for (const auto& [cols, padding] : {std::pair(1, 0), std::pair(200, 24), std::pair(131, 2)}) {
        const HostMatrix before = random(4, cols, 8);
        const DeviceMatrix x(backend(), before, padding);
        backend().add_noise(
            {x.view(), device_positions.data(), device_samples.data(), 11, 3, 0.25F});
        HostMatrix expected = before;
        double most = 0.0;
        for (std::int64_t row = 0; row < 4; ++row) {
            for (std::int64_t j = 0; j < cols; ++j) {
                const auto at = static_cast<std::size_t>(row);
                const auto bits = dropout_bits(11, 3, static_cast<std::uint32_t>(samples[at]),
                                               static_cast<std::uint32_t>(positions[at]),
                                               static_cast<std::uint32_t>(j / 8));
                const std::uint32_t word = bits[static_cast<std::size_t>(j % 8 / 2)];
                const float unit = noise_unit((j % 2 == 0 ? word : word >> 16U) & 0x7fffU);
                most = std::max(most, std::abs(static_cast<double>(unit)));
                expected(row, j) += 0.25 * unit;
            }
        }
        EXPECT_LT(most, 1.0);
        EXPECT_GT(most, cols > 1 ? 0.9 : 0.0);
        expect_close(x, expected, "with noise");
    }
}

LORATRAIN_FOR_EACH_BACKEND(RandomTest);

}  // namespace
}  // namespace loratrain
