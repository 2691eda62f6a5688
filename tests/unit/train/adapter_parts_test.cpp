#include "train/adapter_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace loratrain::test {
namespace {

TEST(AdapterParts, PiecesKeepEveryBit) {
    const std::vector<float> values{1.5F, -0.0F, std::numeric_limits<float>::denorm_min()};
    const std::vector<AdapterPiece> pieces = pieces_of(AdapterId{12}, 3, values);
    ASSERT_EQ(pieces.size(), 1U);
    const std::string text = to_text(pieces[0]);
    ASSERT_TRUE(is_adapter_piece(text));
    const AdapterPiece read = adapter_piece_from_text(text);
    EXPECT_EQ(read.adapter, AdapterId{12});
    EXPECT_EQ(read.rank, 3);
    EXPECT_TRUE(read.last);
    EXPECT_EQ(read.values, values);
    EXPECT_TRUE(std::signbit(read.values[1]));
    EXPECT_FALSE(is_adapter_piece("1 20 3 0.5 1 1\n"));
    EXPECT_THROW(adapter_piece_from_text(text.substr(0, text.size() - 1)), Error);
    EXPECT_THROW(adapter_piece_from_text("part x\n"), Error);
}

TEST(AdapterParts, AreCutIntoMessages) {
    std::vector<float> values((std::size_t{1} << 24) + 3);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
    const std::vector<AdapterPiece> pieces = pieces_of(AdapterId{0}, 1, values);
    ASSERT_EQ(pieces.size(), 2U);
    EXPECT_FALSE(pieces[0].last);
    AdapterParts parts;
    parts.expect(AdapterId{0}, 2);
    for (const AdapterPiece& piece : pieces) {
        EXPECT_TRUE(parts.take_complete().empty());
        parts.add(piece);
    }
    EXPECT_EQ(parts.take_complete().at(AdapterId{0}).at(1), values);
}

TEST(AdapterParts, AreCompleteWithTheLastRank) {
    AdapterParts parts;
    EXPECT_TRUE(parts.empty());
    parts.expect(AdapterId{4}, 3);
    parts.expect(AdapterId{5}, 1);  // the only rank has all
    EXPECT_EQ(parts.take_complete().count(AdapterId{5}), 1U);
    parts.add(pieces_of(AdapterId{4}, 2, std::vector<float>{2.0F})[0]);
    EXPECT_TRUE(parts.take_complete().empty());
    parts.add(pieces_of(AdapterId{4}, 1, {})[0]);  // a stage that trains nothing of it
    const auto complete = parts.take_complete();
    ASSERT_EQ(complete.size(), 1U);
    EXPECT_EQ(complete.at(AdapterId{4}).at(2), std::vector<float>{2.0F});
    EXPECT_TRUE(complete.at(AdapterId{4}).at(1).empty());
    EXPECT_TRUE(parts.empty());
    EXPECT_THROW(parts.add({AdapterId{4}, 1, true, {}}), Error);
}

}  // namespace
}  // namespace loratrain::test
