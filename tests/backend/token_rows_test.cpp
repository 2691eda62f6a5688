#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// Two slots with tokens, some of which are other lanes', and one without, on rows of which some
/// are of no segment. Their loops are in the tests: rows by tokens, in fp64.
class TokenRowsTest : public BackendTest {
  protected:
    static constexpr std::int64_t rows = 60;
    static constexpr std::int64_t hidden = 24;
    static constexpr std::int64_t vocabulary = 40;
    static constexpr float scale = 0.75F;

    void SetUp() override {
        for (std::int32_t row = 0; row < rows; ++row)
            ids_.push_back(row % 7 == 3 ? -1 : row * row % 23);
    }

    struct Slots {
        Slots(Backend& backend, const std::vector<HostMatrix>& values) {
            for (std::size_t s = 0; s < tokens.size(); ++s) {
                if (tokens[s].empty()) continue;
                const std::vector<float> list(values[s].values.begin(), values[s].values.end());
                matrices.emplace_back(backend, list);
                slots[s].rows = matrices.back().data();
                matrices.emplace_back(backend, std::vector<float>(list.size(), 0.5F));
                slots[s].gradient = matrices.back().data();
                slots[s].tokens = tokens[s];
            }
        }
        std::vector<std::vector<std::int32_t>> tokens{{4, 1, -1, 39, -1, -1, 16}, {}, {-1, 16, 0}};
        std::vector<DeviceVector<float>> matrices;  ///< rows and gradient of each with tokens
        std::array<TokenSlot, 3> slots{};
    };

    std::vector<HostMatrix> factors() const {
        return {random(7, hidden, 5), HostMatrix(0, hidden), random(3, hidden, 6)};
    }
    /// visit(slot, row, place among its tokens, token) of every row of a segment, without tokens of
    /// other lanes.
    template <class Visit>
    void for_each(const Slots& of, const Visit& visit) const {
        for (const LoraSegment& segment : segments_) {
            const auto s = static_cast<std::size_t>(segment.slot);
            for (std::int64_t row = segment.begin; row < segment.end; ++row) {
                for (std::size_t i = 0; i < of.tokens[s].size(); ++i) {
                    if (of.tokens[s][i] < 0) continue;
                    visit(s, row, static_cast<std::int64_t>(i), of.tokens[s][i]);
                }
            }
        }
    }
    void expect_gradients(const Slots& of, const std::vector<HostMatrix>& expected) {
        expect_close(of.matrices[1], expected[0], DType::f32, "first");
        expect_close(of.matrices[3], expected[2], DType::f32, "third");
    }
    static std::vector<HostMatrix> gradients_before() {
        return {HostMatrix(7, hidden, 0.5), HostMatrix(0, hidden), HostMatrix(3, hidden, 0.5)};
    }

    std::vector<LoraSegment> segments_{{0, 0, 20, 1}, {1, 20, 30, 1}, {2, 33, rows, 1}};
    std::vector<std::int32_t> ids_;
};

TEST_P(TokenRowsTest, PlacesRowsByToken) {
    const Slots of(backend(), factors());
    const DeviceVector<std::int32_t> ids(backend(), ids_);
    HostMatrix expected = random(rows, hidden, 1);
    const DeviceMatrix x(backend(), expected, 3);
    backend().place_tokens({{of.slots, segments_}, ids.data(), x.view(), scale});
    const std::vector<HostMatrix> r = factors();
    std::int64_t placed = 0;
    for_each(of, [&](std::size_t s, std::int64_t row, std::int64_t i, std::int32_t token) {
        if (ids_[static_cast<std::size_t>(row)] != token) return;
        for (std::int64_t k = 0; k < hidden; ++k) expected(row, k) = scale * r[s](i, k);
        ++placed;
    });
    EXPECT_GT(placed, 4);
    expect_close(x, expected, "x");
}

TEST_P(TokenRowsTest, AddsGradientsByToken) {
    for (const std::int32_t still : {-1, 16}) {
        const Slots of(backend(), factors());
        const DeviceVector<std::int32_t> ids(backend(), ids_);
        const HostMatrix values = random(rows, hidden, 2);
        const DeviceMatrix dx(backend(), values, 3);
        backend().place_tokens_backward(
            {{of.slots, segments_}, ids.data(), dx.view(), scale, still});
        std::vector<HostMatrix> expected = gradients_before();
        for_each(of, [&](std::size_t s, std::int64_t row, std::int64_t i, std::int32_t token) {
            if (ids_[static_cast<std::size_t>(row)] != token || token == still) return;
            for (std::int64_t k = 0; k < hidden; ++k) {
                expected[s](i, k) += scale * values(row, k);
            }
        });
        expect_gradients(of, expected);
        expect_close(dx, values, "dx is only read");
    }
}

TEST_P(TokenRowsTest, LogitsOfTheTokensAlone) {
    const Slots of(backend(), factors());
    const HostMatrix values = random(rows, hidden, 3);
    HostMatrix expected = random(rows, vocabulary, 4);
    const DeviceMatrix x(backend(), values, 3);
    const DeviceMatrix logits(backend(), expected, 5);
    backend().token_logits({{of.slots, segments_}, x.view(), logits.view(), scale});
    const std::vector<HostMatrix> r = factors();
    for_each(of, [&](std::size_t s, std::int64_t row, std::int64_t i, std::int32_t token) {
        expected(row, token) = 0.0;
        for (std::int64_t k = 0; k < hidden; ++k) {
            expected(row, token) += scale * values(row, k) * r[s](i, k);
        }
    });
    expect_close(logits, expected, "logits");
}

TEST_P(TokenRowsTest, BackwardOfLogits) {
    const Slots of(backend(), factors());
    const HostMatrix values = random(rows, hidden, 3);
    HostMatrix d_values = random(rows, vocabulary, 4);
    const DeviceMatrix x(backend(), values, 3);
    const DeviceMatrix d_logits(backend(), d_values, 5);
    const DeviceMatrix dx(backend(), HostMatrix(rows, hidden, 9.0), 2);
    backend().token_logits_backward(
        {{of.slots, segments_}, x.view(), d_logits.view(), dx.view(), scale});
    const std::vector<HostMatrix> r = factors();
    std::vector<HostMatrix> expected = gradients_before();
    HostMatrix expected_dx(rows, hidden);
    for_each(of, [&](std::size_t s, std::int64_t row, std::int64_t i, std::int32_t token) {
        for (std::int64_t k = 0; k < hidden; ++k) {
            expected_dx(row, k) += scale * d_values(row, token) * r[s](i, k);
            expected[s](i, k) += scale * d_values(row, token) * values(row, k);
        }
        d_values(row, token) = 0.0;
    });
    expect_close(dx, expected_dx, "dx");
    expect_close(d_logits, d_values, "d_logits");
    expect_gradients(of, expected);
}

LORATRAIN_FOR_EACH_BACKEND(TokenRowsTest);

}  // namespace
}  // namespace loratrain
