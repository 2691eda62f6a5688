#include "plan/memory/streamed_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace loratrain {
namespace {

std::vector<std::int32_t> up(std::int32_t layers) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(layers));
    std::iota(order.begin(), order.end(), 0);
    return order;
}

std::vector<std::int32_t> down(std::int32_t layers) {
    std::vector<std::int32_t> order = up(layers);
    std::reverse(order.begin(), order.end());
    return order;
}

/// Plays passes as a stage does, and checks that every layer is used in the buffer to which it was
/// loaded last, which nothing else was loaded to since.
class Player {
  public:
    explicit Player(std::int32_t buffers) : order_(buffers) {}

    /// Loads that it took.
    std::size_t run(std::vector<std::int32_t> pass, const std::vector<std::int32_t>& next) {
        const std::size_t before = loads_.size();
        std::vector<std::int32_t> expected = pass;
        expected.insert(expected.end(), next.begin(), next.end());
        order_.expect(expected);
        load();
        for (const std::int32_t layer : pass) {
            EXPECT_TRUE(order_.expects(layer));
            in_use_ = order_.use(layer);
            EXPECT_EQ(held_[in_use_], layer);
            load();  // nothing comes to the buffer in use
            in_use_ = -1;
            order_.done();
            load();
        }
        return loads_.size() - before;
    }

    const std::vector<std::int32_t>& loads() const { return loads_; }

  private:
    void load() {
        while (const auto load = order_.next_load()) {
            EXPECT_NE(load->buffer, in_use_);
            held_[load->buffer] = load->layer;
            loads_.push_back(load->layer);
        }
    }

    StreamOrder order_;
    std::map<std::int32_t, std::int32_t> held_;
    std::int32_t in_use_ = -1;
    std::vector<std::int32_t> loads_;
};

TEST(StreamOrder, WhatForwardUsedLastIsThereForBackward) {
    Player player(3);
    EXPECT_EQ(player.run(up(8), down(8)), 8U);
    // 7, 6 and 5 are there; 0, 1 and 2 stay for the forward behind it.
    EXPECT_EQ(player.run(down(8), up(8)), 5U);
    EXPECT_EQ(player.run(up(8), down(8)), 5U);
    const std::vector<std::int32_t> in_order{0, 1, 2, 3, 4, 5, 6, 7, 4, 3, 2, 1, 0, 3, 4, 5, 6, 7};
    EXPECT_EQ(player.loads(), in_order);
}

TEST(StreamOrder, EvaluationsComeInTurn) {
    Player player(3);
    player.run(up(5), up(5));
    // The next forward's first layers come while the last ones compute.
    const std::vector<std::int32_t> in_order{0, 1, 2, 3, 4, 0, 1, 2};
    EXPECT_EQ(player.loads(), in_order);
    EXPECT_EQ(player.run(up(5), down(5)), 2U);
    EXPECT_EQ(player.run(down(5), up(5)), 2U);
}

TEST(StreamOrder, EnoughBuffersLoadOnce) {
    Player player(3);
    EXPECT_EQ(player.run(up(3), down(3)), 3U);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(player.run(down(3), up(3)), 0U);
        EXPECT_EQ(player.run(up(3), down(3)), 0U);
    }
}

TEST(StreamOrder, OneBuffer) {
    Player player(1);
    EXPECT_EQ(player.run(up(3), down(3)), 3U);
    EXPECT_EQ(player.run(down(3), up(3)), 2U);
}

TEST(StreamOrder, AnyOrderOfPassesAndLayers) {
    for (std::int32_t buffers = 1; buffers <= 4; ++buffers) {
        Player player(buffers);
        std::uint32_t random = 1;
        const auto draw = [&] { return (random = random * 1664525U + 1013904223U) >> 28U; };
        std::vector<std::int32_t> pass = up(7);
        for (int i = 0; i < 200; ++i) {
            std::vector<std::int32_t> next = draw() % 2 == 0 ? up(7) : down(7);
            if (draw() % 4 == 0) next.erase(next.begin() + draw() % 7);
            // What was expected need not come.
            player.run(pass, draw() % 3 == 0 ? down(7) : next);
            pass = next;
        }
    }
}

TEST(StreamOrder, RefusesWhatIsOutOfTurn) {
    StreamOrder order(2);
    order.expect({0, 1});
    EXPECT_ANY_THROW(order.use(0));  // not loaded
    while (order.next_load()) {
    }
    EXPECT_ANY_THROW(order.use(1));
    EXPECT_ANY_THROW(order.done());
    order.use(0);
    EXPECT_ANY_THROW(order.expect({1}));
    EXPECT_EQ(order.buffer_of(1), 1);
    EXPECT_EQ(order.buffer_of(5), -1);
    order.done();
    order.forget();
    EXPECT_EQ(order.buffer_of(1), -1);
    EXPECT_FALSE(order.expects(1));
}

}  // namespace
}  // namespace loratrain
