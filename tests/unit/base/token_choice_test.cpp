#include "base/token_choice.h"

#include <gtest/gtest.h>

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

/// Shares of the tokens for random numbers at equal distances.
std::map<std::int32_t, double> shares(double temperature, double top_p, int count) {
    std::map<std::int32_t, double> found;
    for (int i = 0; i < count; ++i) {
        const double uniform = (i + 0.5) / count;
        found[choose_token(logits, {temperature, top_p, uniform}).token] += 1.0 / count;
    }
    return found;
}

TEST(TokenChoice, SharesAreThoseOfTheSoftmax) {
    for (const double temperature : {1.0, 0.5, 1.7}) {
        std::map<std::int32_t, double> found = shares(temperature, 1.0, 20'000);
        for (std::size_t t = 0; t < logits.size(); ++t) {
            EXPECT_NEAR(found[static_cast<std::int32_t>(t)], probability(t, temperature), 1e-4);
        }
    }
}

TEST(TokenChoice, TopPKeepsTheFewestTokensThatReachIt) {
    const double two = probability(1, 1.0) + probability(3, 1.0);
    const double three = two + probability(5, 1.0);
    const auto kept = [](double top_p) {
        std::set<std::int32_t> tokens;
        for (const auto& [token, share] : shares(1.0, top_p, 2'000)) tokens.insert(token);
        return tokens;
    };
    EXPECT_EQ(kept(1e-6), (std::set<std::int32_t>{1})) << "of equal logits the first";
    EXPECT_EQ(kept(two - 1e-6), (std::set<std::int32_t>{1, 3}));
    EXPECT_EQ(kept(two + 1e-6), (std::set<std::int32_t>{1, 3, 5}));
    EXPECT_EQ(kept(three + 1e-6), (std::set<std::int32_t>{0, 1, 3, 5}));
    std::map<std::int32_t, double> found = shares(1.0, two + 1e-6, 20'000);
    EXPECT_NEAR(found[5], probability(5, 1.0) / three, 1e-4);
}

TEST(TokenChoice, LogprobIsOfTheWholeSoftmax) {
    for (const double uniform : {0.0, 0.4, 0.999999}) {
        for (const TokenDraw& draw : {TokenDraw{1.0, 1.0, uniform}, TokenDraw{0.3, 1.0, uniform},
                                      TokenDraw{2.0, 0.5, uniform}}) {
            const ChosenToken chosen = choose_token(logits, draw);
            const auto token = static_cast<std::size_t>(chosen.token);
            EXPECT_NEAR(chosen.logprob, std::log(probability(token, 1.0)), 1e-6);
            EXPECT_EQ(chosen.logit, logits[token]);
        }
    }
}

TEST(TokenChoice, EndsOfTheRange) {
    EXPECT_EQ(choose_token(logits, {1.0, 1.0, 0.0}).token, 0);
    const double below_one = std::nextafter(1.0, 0.0);
    EXPECT_LT(choose_token(logits, {1.0, 1.0, below_one}).token, 7);
    std::vector<float> one(5, -std::numeric_limits<float>::infinity());
    one[3] = 1.0F;
    EXPECT_EQ(choose_token(one, {1.0, 1.0, below_one}).token, 3);
    EXPECT_EQ(choose_token(one, {1.0, 0.5, 0.0}).token, 3);
    EXPECT_FLOAT_EQ(choose_token(one, {1.0, 1.0, 0.5}).logprob, 0.0F);
}

TEST(TokenChoice, AtTemperatureZeroItIsTheFirstOfTheMostLikely) {
    const ChosenToken chosen = choose_token(logits, {0.0, 0.5, 0.99});
    EXPECT_EQ(chosen.token, 1);
    EXPECT_EQ(chosen.logit, 2.0F);
    EXPECT_EQ(chosen.logprob, 0.0F);
}

TEST(TokenChoice, LogitsThatAreNotFiniteGiveNoLogprob) {
    std::vector<float> bad = logits;
    bad[2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(choose_token(bad, {1.0, 1.0, 0.5}).logprob));
    bad[2] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isnan(choose_token(bad, {1.0, 0.9, 0.5}).logprob));
}

}  // namespace
}  // namespace loratrain::test
