#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/backend_case.h"
#include "support/device_data.h"

namespace loratrain {
namespace {

using reference::HostMatrix;

/// One row's tokens that top_p keeps, in the order of the vocabulary, and their weights.
struct Kept {
    std::vector<std::int64_t> tokens;
    std::vector<double> weights;
    double mass() const { return std::accumulate(weights.begin(), weights.end(), 0.0); }
};

class ChooseTokensTest : public BackendTest {
  protected:
    static std::vector<double> weights_of(const HostMatrix& logits, std::int64_t row,
                                          double temperature) {
        double largest = logits(row, 0);
        for (std::int64_t j = 0; j < logits.cols; ++j) largest = std::max(largest, logits(row, j));
        std::vector<double> weights;
        for (std::int64_t j = 0; j < logits.cols; ++j) {
            weights.push_back(std::exp((logits(row, j) - largest) / temperature));
        }
        return weights;
    }

    /// The most likely `count` tokens.
    static Kept keep(const std::vector<double>& weights, std::int64_t count) {
        std::vector<std::int64_t> order(weights.size());
        std::iota(order.begin(), order.end(), std::int64_t{0});
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) { return weights[a] > weights[b]; });
        order.resize(static_cast<std::size_t>(count));
        std::sort(order.begin(), order.end());
        Kept kept{order, {}};
        for (const std::int64_t token : order) kept.weights.push_back(weights[token]);
        return kept;
    }

    /// Chooses in each row with `uniform` in the middle of a token, and top_p in the middle of the
    /// last token of `count`. `count` = 0: all tokens.
    void check(const HostMatrix& logits, double temperature, std::int64_t count,
               std::int64_t padding = 0) {
        std::vector<TokenDraw> draws;
        std::vector<std::int64_t> expected;
        for (std::int64_t row = 0; row < logits.rows; ++row) {
            const std::vector<double> weights = weights_of(logits, row, temperature);
            const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
            const Kept kept = keep(weights, count == 0 ? logits.cols : count);
            std::int64_t place = uniform_int(5, static_cast<std::uint64_t>(row),
                                             static_cast<std::int64_t>(kept.tokens.size()));
            // Not one that rounding alone could miss.
            const double most = *std::max_element(kept.weights.begin(), kept.weights.end());
            if (kept.weights[place] < 1e-2 * most) {
                place = std::max_element(kept.weights.begin(), kept.weights.end()) -
                        kept.weights.begin();
            }
            const double before =
                std::accumulate(kept.weights.begin(), kept.weights.begin() + place, 0.0);
            const double least = *std::min_element(kept.weights.begin(), kept.weights.end());
            draws.push_back({temperature, count == 0 ? 1.0 : (kept.mass() - 0.5 * least) / all,
                             (before + 0.5 * kept.weights[place]) / kept.mass()});
            expected.push_back(kept.tokens[place]);
        }
        const DeviceMatrix device(backend(), logits, padding);
        const DeviceVector<ChosenToken> tokens(backend(), std::vector<ChosenToken>(draws.size()));
        backend().choose_tokens({device.view(), draws, tokens.data()});
        const std::vector<ChosenToken> chosen = tokens.download();
        for (std::int64_t row = 0; row < logits.rows; ++row) {
            const ChosenToken& own = chosen[row];
            ASSERT_EQ(own.token, expected[row])
                << "row " << row << " of " << logits.cols << " columns, temperature " << temperature
                << ", " << count << " kept";
            const std::vector<double> plain = weights_of(logits, row, 1.0);
            const double all = std::accumulate(plain.begin(), plain.end(), 0.0);
            EXPECT_NEAR(own.logprob, std::log(plain[own.token] / all), 3e-6);
            EXPECT_EQ(own.logit, logits(row, own.token));
        }
    }
};

TEST_P(ChooseTokensTest, DrawsAsLoopsDo) {
    for (const std::int64_t columns : {1, 2, 7, 31, 256, 257, 1000, 4104, 33'000, 128'256}) {
        const HostMatrix logits = random(3, columns, 11);
        for (const double temperature : {1.0, 0.4, 2.5}) check(logits, temperature, 0);
        check(logits, 1.0, 0, 3);
    }
    check(HostMatrix(0, 9), 1.0, 0);
}

TEST_P(ChooseTokensTest, TopPKeepsTheMostLikely) {
    for (const std::int64_t columns : {2, 7, 257, 4104, 33'000}) {
        HostMatrix logits = random(3, columns, 12);
        for (double& x : logits.values) x = reference::rounded_to(dtype(), 6.0 * x);
        for (const std::int64_t count : {std::int64_t{1}, columns / 3 + 1, columns}) {
            check(logits, 1.0, count);
            check(logits, 0.7, count);
        }
    }
}

TEST_P(ChooseTokensTest, OfEqualLogitsTheFirstAreKept) {
    HostMatrix logits(1, 5000, -3.0);
    for (const std::int64_t column : {4, 700, 701, 4999}) logits(0, column) = 1.5;
    for (const std::int64_t count : {1, 2, 3, 4}) check(logits, 1.0, count);
}

TEST_P(ChooseTokensTest, TemperatureZeroChoosesTheFirstOfTheMostLikely) {
    for (const std::int64_t columns : {1, 9, 300, 4104, 128'256}) {
        HostMatrix logits = random(4, columns, 13);
        std::vector<std::int64_t> expected;
        for (std::int64_t row = 0; row < logits.rows; ++row) {
            const std::int64_t place = uniform_int(6, static_cast<std::uint64_t>(row), columns);
            for (std::int64_t j = place; j < columns; j += 1 + columns / 3) logits(row, j) = 2.0;
            expected.push_back(place);
        }
        const DeviceMatrix device(backend(), logits);
        const std::vector<TokenDraw> draws(4);
        const DeviceVector<ChosenToken> tokens(backend(), std::vector<ChosenToken>(4));
        backend().choose_tokens({device.view(), draws, tokens.data()});
        const std::vector<ChosenToken> chosen = tokens.download();
        for (std::size_t row = 0; row < 4; ++row) {
            EXPECT_EQ(chosen[row].token, expected[row]);
            EXPECT_EQ(chosen[row].logit, 2.0F);
        }
    }
}

TEST_P(ChooseTokensTest, LogitsOfMinusInfinityAreNeverDrawnAndOthersAreReported) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    HostMatrix logits(5, 600, -infinity);
    for (std::int64_t row = 0; row < 4; ++row) logits(row, 411) = 0.5;
    logits(2, 5) = std::numeric_limits<double>::quiet_NaN();
    logits(3, 5) = infinity;
    const DeviceMatrix device(backend(), logits);
    const double below_one = std::nextafter(1.0, 0.0);
    const std::vector<TokenDraw> draws{
        {1.0, 1.0, 0.0}, {1.0, 0.5, below_one}, {1.0, 1.0, 0.5}, {1.0, 0.9, 0.5}, {1.0, 1.0, 0.5}};
    const DeviceVector<ChosenToken> tokens(backend(), std::vector<ChosenToken>(5));
    backend().choose_tokens({device.view(), draws, tokens.data()});
    const std::vector<ChosenToken> chosen = tokens.download();
    for (const std::size_t row : {0, 1}) {
        EXPECT_EQ(chosen[row].token, 411);
        EXPECT_EQ(chosen[row].logprob, 0.0F);
    }
    for (const std::size_t row : {2, 3, 4}) EXPECT_TRUE(std::isnan(chosen[row].logprob)) << row;
}

LORATRAIN_FOR_EACH_BACKEND(ChooseTokensTest);

}  // namespace
}  // namespace loratrain
