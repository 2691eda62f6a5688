#include "base/random_matrix.h"
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
                backend().fill_random(target.view(), random);
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

LORATRAIN_FOR_EACH_BACKEND(RandomTest);

}  // namespace
}  // namespace loratrain
