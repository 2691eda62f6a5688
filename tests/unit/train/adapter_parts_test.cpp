#include "train/adapter_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace loratrain::test {
namespace {

std::vector<AdapterPiece> pieces_of(const PartKey& key, std::int32_t rank,
                                    std::vector<float> values) {
    std::vector<AdapterPiece> pieces;
    for_each_piece(whole_piece(key, rank, std::move(values)),
                   [&](const AdapterPiece& piece) { pieces.push_back(piece); });
    return pieces;
}

TEST(AdapterParts, PiecesKeepEveryBit) {
    const std::vector<float> values{1.5F, -0.0F, std::numeric_limits<float>::denorm_min()};
    const PartKey key{AdapterId{12}, StatePart::second_moments, PartUse::best, 140};
    const std::vector<AdapterPiece> pieces = pieces_of(key, 3, values);
    ASSERT_EQ(pieces.size(), 1U);
    const std::string text = to_text(pieces[0]);
    ASSERT_TRUE(is_adapter_piece(text));
    const AdapterPiece read = adapter_piece_from_text(text);
    EXPECT_EQ(read.key, key);
    EXPECT_EQ(read.rank, 3);
    EXPECT_TRUE(read.last);
    EXPECT_EQ(read.total, 3U);
    EXPECT_EQ(read.values, values);
    EXPECT_TRUE(std::signbit(read.values[1]));
    EXPECT_FALSE(is_adapter_piece("1 20 3 0.5 1 1\n"));
    EXPECT_THROW(adapter_piece_from_text(text.substr(0, text.size() - 1)), Error);
    EXPECT_THROW(adapter_piece_from_text("part x\n"), Error);
    EXPECT_THROW(adapter_piece_from_text("part 1 9 0 0 3 1 0\n"), Error);
    EXPECT_THROW(adapter_piece_from_text("part 1 0 3 0 3 1 0\n"), Error);
}

TEST(AdapterParts, AreCutIntoMessages) {
    std::vector<float> values((std::size_t{1} << 22) + 3);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
    const std::vector<AdapterPiece> pieces = pieces_of({AdapterId{0}}, 1, values);
    ASSERT_EQ(pieces.size(), 2U);
    EXPECT_FALSE(pieces[0].last);
    AdapterParts parts;
    parts.expect({AdapterId{0}}, 1);
    for (const AdapterPiece& piece : pieces) {
        EXPECT_TRUE(parts.take_complete(PartUse::exported).empty());
        parts.add(piece);
    }
    EXPECT_EQ(parts.take_complete(PartUse::exported).at({AdapterId{0}}).at(1), values);
}

TEST(AdapterParts, AreCompleteWithTheLastRank) {
    AdapterParts parts;
    EXPECT_TRUE(parts.empty());
    const PartKey key{AdapterId{4}, StatePart::first_moments, PartUse::checkpoint};
    parts.expect(key, 2);
    parts.expect({AdapterId{5}}, 0);  // the only rank has all
    EXPECT_TRUE(parts.take_complete(PartUse::checkpoint).empty());
    EXPECT_EQ(parts.take_complete(PartUse::exported).count({AdapterId{5}}), 1U);
    EXPECT_THROW(parts.add({{AdapterId{4}}, 1, true, {}, 0}), Error);  // parameters for an export
    parts.add(pieces_of(key, 2, std::vector<float>{2.0F})[0]);
    EXPECT_TRUE(parts.take_complete(PartUse::checkpoint).empty());
    parts.add(pieces_of(key, 1, {})[0]);  // a stage that trains nothing of it
    EXPECT_TRUE(parts.take_complete(PartUse::exported).empty());
    const auto complete = parts.take_complete(PartUse::checkpoint);
    ASSERT_EQ(complete.size(), 1U);
    EXPECT_EQ(complete.at(key).at(2), std::vector<float>{2.0F});
    EXPECT_TRUE(complete.at(key).at(1).empty());
    EXPECT_TRUE(parts.empty());
    EXPECT_THROW(parts.add({key, 1, true, {}}), Error);
}

}  // namespace
}  // namespace loratrain::test
