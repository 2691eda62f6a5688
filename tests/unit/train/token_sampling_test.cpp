#include "train/token_sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <vector>

namespace loratrain::test {
namespace {

const std::vector<float> logits{0.5F, 2.0F, -1.0F, 2.0F, 0.0F, 1.2F, -30.0F};

double probability(std::size_t token, double temperature) {
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(logit / temperature);
    return std::exp(logits[token] / temperature) / sum;
}

std::map<std::int32_t, double> shares(const Draw& draw, int count) {
    std::map<std::int32_t, double> found;
    for (int i = 0; i < count; ++i) {
        const double uniform = draw.uniform(static_cast<std::uint32_t>(i));
        found[draw_token(logits, draw, uniform).token] += 1.0 / count;
    }
    return found;
}

TEST(TokenSampling, SharesAreThoseOfTheSoftmax) {
    constexpr int count = 200'000;
    for (const double temperature : {1.0, 0.5, 1.7}) {
        std::map<std::int32_t, double> found = shares({temperature, 1.0, 7}, count);
        for (std::size_t t = 0; t < logits.size(); ++t) {
            const double p = probability(t, temperature);
            const double bound = 5.0 * std::sqrt(p * (1.0 - p) / count) + 1e-9;
            EXPECT_NEAR(found[static_cast<std::int32_t>(t)], p, bound) << temperature << " " << t;
        }
    }
}

TEST(TokenSampling, TopPKeepsTheFewestTokensThatReachIt) {
    const double two = probability(1, 1.0) + probability(3, 1.0);
    const double three = two + probability(5, 1.0);
    const auto kept = [](double top_p) {
        std::set<std::int32_t> tokens;
        for (const auto& [token, share] : shares({1.0, top_p, 11}, 20'000)) tokens.insert(token);
        return tokens;
    };
    EXPECT_EQ(kept(1e-6), (std::set<std::int32_t>{1})) << "of equal logits the first";
    EXPECT_EQ(kept(two - 1e-6), (std::set<std::int32_t>{1, 3}));
    EXPECT_EQ(kept(two + 1e-6), (std::set<std::int32_t>{1, 3, 5}));
    EXPECT_EQ(kept(three + 1e-6), (std::set<std::int32_t>{0, 1, 3, 5}));
    std::map<std::int32_t, double> found = shares({1.0, two + 1e-6, 11}, 200'000);
    EXPECT_NEAR(found[5], probability(5, 1.0) / three, 0.005);
}

TEST(TokenSampling, LogprobIsOfTheWholeSoftmax) {
    for (const Draw& draw : {Draw{1.0, 1.0}, Draw{0.3, 1.0}, Draw{2.0, 0.5}}) {
        for (const double uniform : {0.0, 0.4, 0.999999}) {
            const DrawnToken drawn = draw_token(logits, draw, uniform);
            const double p = probability(static_cast<std::size_t>(drawn.token), 1.0);
            EXPECT_NEAR(drawn.logprob, std::log(p), 1e-6);
        }
    }
}

TEST(TokenSampling, EndsOfTheRange) {
    EXPECT_EQ(draw_token(logits, {1.0, 1.0}, 0.0).token, 0);
    const double below_one = std::nextafter(1.0, 0.0);
    EXPECT_LT(draw_token(logits, {1.0, 1.0}, below_one).token, 7);
    std::vector<float> one(5, -std::numeric_limits<float>::infinity());
    one[3] = 1.0F;
    EXPECT_EQ(draw_token(one, {1.0, 1.0}, below_one).token, 3);
    EXPECT_EQ(draw_token(one, {1.0, 0.5}, 0.0).token, 3);
    EXPECT_FLOAT_EQ(draw_token(one, {1.0, 1.0}, 0.5).logprob, 0.0F);
}

TEST(TokenSampling, LogitsThatAreNotFiniteGiveNoLogprob) {
    std::vector<float> bad = logits;
    bad[2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(draw_token(bad, {1.0, 1.0}, 0.5).logprob));
    bad[2] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(draw_token(bad, {1.0, 0.9}, 0.5).logprob));
}

TEST(TokenSampling, UniformsDependOnEveryField) {
    const Draw draw{1.0, 1.0, 42, 3, 5, 2};
    std::set<double> seen{draw.uniform(9)};
    const auto expect_new = [&](const Draw& other, std::uint32_t position) {
        const double value = other.uniform(position);
        EXPECT_TRUE(value >= 0.0 && value < 1.0);
        EXPECT_TRUE(seen.insert(value).second);
    };
    expect_new(draw, 10);
    expect_new({1.0, 1.0, 43, 3, 5, 2}, 9);
    expect_new({1.0, 1.0, 42, 4, 5, 2}, 9);
    expect_new({1.0, 1.0, 42, 3, 6, 2}, 9);
    expect_new({1.0, 1.0, 42, 3, 5, 3}, 9);
    EXPECT_EQ(draw.uniform(9), (Draw{0.7, 0.9, 42, 3, 5, 2}.uniform(9)));
}

}  // namespace
}  // namespace loratrain::test
