#include "train/checkpoint/adapter_transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "support/problems.h"
#include "support/small_model.h"

namespace loratrain::test {
namespace {

constexpr AdapterId lone{0};

/// One adapter on stages of so many lanes. Values are those of the whole tensors, which one lane
/// has one behind another, and of which several lanes have cuts.
class JoinedValues : public ::testing::Test {
  protected:
    JoinedValues() {
        AdapterJob adapter;
        adapter.name = "a";
        adapter.r = 4;
        job_.adapters = {adapter};
        plan_.model = small_model(2);
        plan_.replicas.resize(1);
        plan_.replicas[0].stages.resize(2);
        for (std::int32_t s = 0; s < 2; ++s) stage(s).first_layer = s;
        for (std::int32_t s = 0; s < 2; ++s) stage(s).layer_count = 1;
        make_lanes(1);
    }

    StagePlan& stage(std::int32_t s) {
        return plan_.replicas[0].stages[static_cast<std::size_t>(s)];
    }

    void make_lanes(std::int32_t lanes) {
        plan_.replicas[0].tensor = lanes;
        values_.clear();
        float next = 0;
        for (std::int32_t s = 0; s < 2; ++s) {
            stage(s).rank = s * lanes;
            const AdapterLayout whole(job_.adapters[0], plan_.model, {s, 1});
            std::vector<float> all(static_cast<std::size_t>(whole.count(StatePart::parameters)));
            std::iota(all.begin(), all.end(), next);
            next += static_cast<float>(all.size());
            for (std::int32_t lane = 0; lane < lanes; ++lane) {
                values_.push_back(cut(whole, all, s, {lane, lanes}));
            }
        }
    }

    std::vector<float> cut(const AdapterLayout& whole, const std::vector<float>& all,
                           std::int32_t s, const TensorLane& lane) const {
        const AdapterLayout own(job_.adapters[0], plan_.model, {s, 1}, lane);
        std::vector<float> part;
        const auto tensors = whole.tensors(StatePart::parameters);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const auto [first, count] = tensors[i].range;
            const auto values = std::span(all).subspan(static_cast<std::size_t>(first),
                                                       static_cast<std::size_t>(count));
            const auto piece = cut_out(own.tensors(StatePart::parameters)[i].cut, values);
            part.insert(part.end(), piece.begin(), piece.end());
        }
        return part;
    }

    std::span<const float> values_of(std::int32_t rank) const {
        return values_.at(static_cast<std::size_t>(rank));
    }
    std::vector<TensorSource> sources() const {
        return tensors_of(job_, plan_, lone, StatePart::parameters,
                          [this](std::int32_t rank) { return values_of(rank); });
    }
    std::vector<NamedTensor> joined() const {
        return join_values(job_, plan_, lone, StatePart::parameters,
                           [this](std::int32_t rank) { return values_of(rank); });
    }
    /// What joining is refused with; "" if it is not.
    std::string refusal() const {
        try {
            joined();
            return "";
        } catch (const Error& error) {
            return error.what();
        }
    }

    Job job_;
    Plan plan_;
    std::vector<std::vector<float>> values_;  ///< by rank
};

TEST_F(JoinedValues, OfOneLaneAreNotCopied) {
    const std::vector<TensorSource> all = sources();
    ASSERT_FALSE(all.empty());
    std::vector<float> room;
    float next = 0;
    for (const TensorSource& source : all) {
        const std::span<const float> values = source.values(room);
        const bool of_first = next < static_cast<float>(values_[0].size());
        const std::span<const float> rank = values_of(of_first ? 0 : 1);
        EXPECT_GE(values.data(), rank.data());
        EXPECT_LE(values.data() + values.size(), rank.data() + rank.size());
        ASSERT_EQ(std::ssize(values), element_count(source.shape));
        for (const float value : values) EXPECT_EQ(value, next++);
    }
    EXPECT_TRUE(room.empty());
    EXPECT_EQ(next, static_cast<float>(values_[0].size() + values_[1].size()));
}

TEST_F(JoinedValues, OfSeveralLanesAreThoseOfOne) {
    const std::vector<NamedTensor> want = joined();
    make_lanes(2);
    const std::vector<NamedTensor> all = joined();
    ASSERT_EQ(all.size(), want.size());
    const std::vector<TensorSource> written = sources();
    std::vector<float> room;
    for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].name, want[i].name);
        EXPECT_EQ(all[i].shape, want[i].shape);
        EXPECT_EQ(all[i].values, want[i].values) << want[i].name;
        const std::span<const float> values = written[i].values(room);
        EXPECT_TRUE(
            std::equal(values.begin(), values.end(), want[i].values.begin(), want[i].values.end()))
            << want[i].name;
    }
}

TEST_F(JoinedValues, MustBeTheSameOnLanesThatHaveThemAll) {
    make_lanes(2);
    values_[3][0] += 1;  // A of q_proj, which lanes have whole
    const std::string text = refusal();
    EXPECT_TRUE(has(text, "adapter a, ")) << text;
    EXPECT_TRUE(has(text, "layers.1.")) << text;
    EXPECT_TRUE(has(text, "ranks 2 and 3 should have the same values, but differ")) << text;
}

TEST_F(JoinedValues, MustBeTheSameWhereLanesShareKeysAndValues) {
    make_lanes(4);  // two of them have each head of keys
    EXPECT_EQ(refusal(), "");
    const AdapterLayout first(job_.adapters[0], plan_.model, {0, 1}, {0, 4});
    const AdapterLayout second(job_.adapters[0], plan_.model, {0, 1}, {1, 4});
    const auto tensors = second.tensors(StatePart::parameters);
    int shared = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const TensorCut& cut = tensors[i].cut;
        const bool same = cut.own == first.tensors(StatePart::parameters)[i].cut.own;
        if (same && !cut.is_whole()) ++shared;
        float& value = values_[1][static_cast<std::size_t>(tensors[i].range.first)];
        const float before = std::exchange(value, -1.0F);
        EXPECT_EQ(!refusal().empty(), same) << i;
        value = before;
    }
    EXPECT_EQ(shared, 2);  // B of k and of v
}

TEST_F(JoinedValues, MustBeAsManyAsTheRanksHave) {
    values_[1].pop_back();
    EXPECT_THROW(sources(), Error);
}

}  // namespace
}  // namespace loratrain::test
