#include <vector>

#include "base/rng.h"
#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

constexpr WeightFormat quantized_formats[] = {WeightFormat::nf4, WeightFormat::int8,
                                              WeightFormat::e4m3, WeightFormat::e4m3_block};

/// Random codes, NaN of e4m3 left out, and scales of many sizes.
struct CodeRows {
    CodeRows(WeightFormat format, std::int64_t rows, std::int64_t ld)
        : codes(static_cast<std::size_t>(rows) * code_bytes(traits_of(format), ld)),
          scales(static_cast<std::size_t>(rows * scale_count(traits_of(format), ld))) {
        for (std::size_t i = 0; i < codes.size(); ++i) {
            const std::uint64_t byte = uniform_int(1, i, 256);
            codes[i] = static_cast<std::uint8_t>((byte & 0x7fU) == 0x7fU ? byte - 1 : byte);
        }
        for (std::size_t i = 0; i < scales.size(); ++i) {
            scales[i] = 1e-3F + 20.0F * std::pow(uniform_float(2, i), 8.0F);
        }
    }
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
};

class DequantizeTest : public BackendTest {
  protected:
    void expect_effective(WeightFormat format, SourceType source, const MatrixShape& shape,
                          std::int64_t ld, std::int64_t padding) {
        const CodeRows host(format, shape.rows, ld);
        const QuantizedMatrix weights{
            format, source, host.codes.data(), host.scales.data(), shape.rows, shape.cols, ld};
        HostMatrix expected(shape.rows, shape.cols);
        std::vector<float> row(static_cast<std::size_t>(shape.cols));
        for (std::int64_t i = 0; i < shape.rows; ++i) {
            effective_row(weights, i, row.data());
            for (std::int64_t j = 0; j < shape.cols; ++j) {
                expected(i, j) = reference::rounded_to(
                    dtype(), static_cast<double>(row[static_cast<std::size_t>(j)]));
            }
        }
        const DeviceVector codes(backend(), host.codes);
        const DeviceVector scales(backend(), host.scales);
        const DeviceMatrix target(backend(), HostMatrix(shape.rows, shape.cols), padding);
        QuantizedMatrix on_device = weights;
        on_device.codes = codes.data();
        on_device.scales = scales.data();
        backend().dequantize({target.view(), on_device});
        EXPECT_EQ(target.download().values, expected.values)
            << traits_of(format).name << " of " << name_of(source) << " " << shape.rows << " x "
            << shape.cols;
    }
};

TEST_P(DequantizeTest, GivesTheBitsOfEffectiveRow) {
    for (const WeightFormat format : quantized_formats) {
        for (const SourceType source : {SourceType::f32, SourceType::bf16, SourceType::f16}) {
            expect_effective(format, source, {5, 192}, 192, 16);
            expect_effective(format, source, {1, 1}, 64, 0);
            expect_effective(format, source, {7, 131}, 192, 5);
        }
        expect_effective(format, SourceType::bf16, {300, 1024}, 1024, 64);
        expect_effective(format, SourceType::bf16, {0, 64}, 64, 0);
        expect_effective(format, SourceType::bf16, {70000, 64}, 64, 0);  // as of many experts
    }
}

LORATRAIN_FOR_EACH_BACKEND(DequantizeTest);

}  // namespace
}  // namespace loratrain
