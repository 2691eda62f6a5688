#include "reference/rope.h"

#include <numeric>

#include "support/backend_case.h"
#include "support/device_data.h"
#include "support/packed_samples.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

std::vector<float> frequencies(std::int64_t head_dim) {
    std::vector<float> result;
    for (std::int64_t j = 0; j < head_dim / 2; ++j) {
        result.push_back(
            std::pow(10000.0F, -2.0F * static_cast<float>(j) / static_cast<float>(head_dim)));
    }
    return result;
}

std::vector<std::int32_t> positions_up_to(std::int32_t count) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(count));
    std::iota(positions.begin(), positions.end(), 0);
    return positions;
}

class RopeTest : public BackendTest {
  protected:
    void check(std::int64_t heads, std::int64_t head_dim,
               const std::vector<std::int32_t>& positions, std::int64_t padding) {
        const auto inv_freq = frequencies(head_dim);
        const auto rows = static_cast<std::int64_t>(positions.size());
        const HostMatrix x = random(rows, heads * head_dim, 1);
        const DeviceMatrix device_x(backend(), x, padding);
        const DeviceVector<float> device_freq(backend(), inv_freq);
        const DeviceVector<std::int32_t> device_positions(backend(), positions);
        Rope op{device_x.view(), head_dim, device_freq.data(), device_positions.data(), false};
        backend().rope(op);
        expect_close(device_x, reference::rope(x, head_dim, inv_freq, positions, false), "rope");
        op.backward = true;
        backend().rope(op);
        expect_close(device_x, x, "rope and back");
    }
};

TEST_P(RopeTest, AgreesWithLoopsAndInverts) {
    check(1, 8, {}, 0);
    check(1, 2, {0}, 0);
    check(3, 6, {0, 1, 2, 0, 1}, 7);
    check(12, 64, {0, 5, 1000, 8191, 131071}, 0);
    check(4, 128, std::vector<std::int32_t>(77, 31), 64);
    check(3, 64, positions_up_to(133), 8);
    check(40, 128, positions_up_to(5), 0);
}

LORATRAIN_FOR_EACH_BACKEND(RopeTest);

}  // namespace
}  // namespace loratrain
