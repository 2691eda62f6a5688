#include "train/text_order.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "base/error.h"

namespace loratrain::test {
namespace {

TEST(TextOrder, RandomNumbersDependOnEveryField) {
    const Draw draw{1.0, 1.0, 42, 3, 5, 2};
    std::set<double> seen{draw.of_token(9).uniform};
    const auto expect_new = [&](const Draw& other, std::uint32_t position) {
        const double value = other.of_token(position).uniform;
        EXPECT_TRUE(value >= 0.0 && value < 1.0);
        EXPECT_TRUE(seen.insert(value).second);
    };
    expect_new(draw, 10);
    expect_new({1.0, 1.0, 43, 3, 5, 2}, 9);
    expect_new({1.0, 1.0, 42, 4, 5, 2}, 9);
    expect_new({1.0, 1.0, 42, 3, 6, 2}, 9);
    expect_new({1.0, 1.0, 42, 3, 5, 3}, 9);
    const TokenDraw other = Draw{0.7, 0.9, 42, 3, 5, 2}.of_token(9);
    EXPECT_EQ(draw.of_token(9).uniform, other.uniform);
    EXPECT_EQ(other.temperature, 0.7);
    EXPECT_EQ(other.top_p, 0.9);
}

TEST(TextOrder, ReplicasGetPromptsThatFitThem) {
    std::vector<TextOrder> orders;
    for (const std::size_t tokens : {3, 9, 9, 4, 8, 9}) {
        orders.emplace_back().prompt.tokens.resize(tokens);
    }
    using Dealt = std::vector<std::vector<std::size_t>>;
    EXPECT_EQ(deal_texts(orders, std::vector<std::int64_t>{9}), (Dealt{{0, 1, 2, 3, 4, 5}}));
    EXPECT_EQ(deal_texts(orders, std::vector<std::int64_t>{9, 9}), (Dealt{{0, 2, 4}, {1, 3, 5}}));
    EXPECT_EQ(deal_texts(orders, std::vector<std::int64_t>{9, 8}), (Dealt{{0, 1, 2, 4, 5}, {3}}));
    EXPECT_EQ(deal_texts(orders, std::vector<std::int64_t>{3, 9, 8}),
              (Dealt{{0}, {1, 2, 4, 5}, {3}}));
    EXPECT_THROW(deal_texts(orders, std::vector<std::int64_t>{8, 8}), Error);
}

}  // namespace
}  // namespace loratrain::test
