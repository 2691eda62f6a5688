#include "train/adapter_parts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "train/report.h"

namespace loratrain::test {
namespace {

std::vector<AdapterPiece> pieces_of(const PartKey& key, std::int32_t rank,
                                    std::vector<float> values) {
    std::vector<AdapterPiece> pieces;
    for_each_piece(whole_piece(key, rank, std::move(values)),
                   [&](AdapterPiece piece) { pieces.push_back(std::move(piece)); });
    return pieces;
}

TEST(AdapterParts, PiecesKeepEveryBit) {
    const std::vector<float> values{1.5F, -0.0F, std::numeric_limits<float>::denorm_min()};
    const PartKey key{AdapterId{12}, StatePart::second_moments, PartUse::kept, 140};
    const std::vector<AdapterPiece> pieces = pieces_of(key, 3, values);
    ASSERT_EQ(pieces.size(), 1U);
    std::string bytes;
    send_as_messages(pieces[0], [&](std::string message) { bytes = std::move(message); });
    const auto read = std::get<AdapterPiece>(report_from_bytes(bytes));
    EXPECT_EQ(read.key, key);
    EXPECT_EQ(read.rank, 3);
    EXPECT_TRUE(read.last);
    EXPECT_EQ(read.total, 3U);
    EXPECT_EQ(read.values, values);
    EXPECT_TRUE(std::signbit(read.values[1]));
    EXPECT_THROW(report_from_bytes(bytes.substr(0, bytes.size() - 1)), Error);
    AdapterPiece other = pieces[0];
    other.key.use = static_cast<PartUse>(part_uses);
    send_as_messages(other, [&](std::string message) { bytes = std::move(message); });
    EXPECT_THROW(report_from_bytes(bytes), Error);
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

TEST(AdapterParts, OfOnePieceAreNotCopied) {
    const PartKey key{AdapterId{0}};
    AdapterPiece piece = whole_piece(key, 1, {1, 2, 3});
    const float* values = piece.values.data();
    AdapterParts parts;
    parts.expect(key, 1);
    parts.add(std::move(piece));
    EXPECT_EQ(parts.take_complete(PartUse::exported).at(key).at(1).data(), values);
    EXPECT_TRUE(parts.empty());
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
