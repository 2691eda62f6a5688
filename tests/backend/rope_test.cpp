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

TEST_P(RopeTest, FirstHeadsAreScaledByPosition) {
    const std::vector<std::int32_t> positions{0, 7, 8, 15, 16, 4000};
    for (const std::int64_t head_dim : {6, 64}) {
        const HostMatrix x = random(6, 3 * head_dim, 1);
        const auto inv_freq = frequencies(head_dim);
        const DeviceVector<float> device_freq(backend(), inv_freq);
        const DeviceVector<std::int32_t> device_positions(backend(), positions);
        for (const bool backward : {false, true}) {
            const DeviceMatrix device_x(backend(), x, 8);
            HostMatrix expected = reference::rope(x, head_dim, inv_freq, positions, backward);
            for (std::int64_t row = 0; row < 6; ++row) {
                const double scale = 1.0 + 0.25 * std::log(1.0 + std::floor(positions[row] / 8.0));
                for (std::int64_t j = 0; j < 2 * head_dim; ++j) expected(row, j) *= scale;
            }
            backend().rope({device_x.view(), head_dim, device_freq.data(), device_positions.data(),
                            backward, 2 * head_dim, 0.25F, 8.0F});
            expect_close(device_x, expected, "rope of scaled queries");
        }
    }
}

TEST_P(RopeTest, PartsOfHeadsAndPairsOfNeighbours) {
    const std::vector<std::int32_t> positions{0, 7, 8, 15, 16, 4000, 131071};
    const auto rows = static_cast<std::int64_t>(positions.size());
    for (const auto& [head_dim, part] : {std::pair{6L, reference::RotatedPart{4, false, 1.25}},
                                         {16L, {12, false, 1.1902380714238083}},
                                         {128L, {96, false, 1.0}},
                                         {128L, {64, true, 1.0}},
                                         {16L, {8, true, 0.5}},
                                         {10L, {6, true, 1.0}},
                                         {64L, {0, true, 1.0}}}) {
        const HostMatrix x = random(rows, 3 * head_dim, 1);
        const auto inv_freq = frequencies(part.columns == 0 ? head_dim : part.columns);
        const DeviceVector<float> device_freq(backend(), inv_freq);
        const DeviceVector<std::int32_t> device_positions(backend(), positions);
        for (const bool backward : {false, true}) {
            const DeviceMatrix device_x(backend(), x, 8);
            Rope op{device_x.view(), head_dim, device_freq.data(), device_positions.data(),
                    backward};
            op.rotary_dim = part.columns;
            op.interleaved = part.interleaved;
            op.length = static_cast<float>(part.length);
            backend().rope(op);
            expect_close(device_x,
                         reference::rope(x, head_dim, inv_freq, positions, backward, part),
                         "rope of a part of heads");
        }
    }
}

LORATRAIN_FOR_EACH_BACKEND(RopeTest);

}  // namespace
}  // namespace loratrain
