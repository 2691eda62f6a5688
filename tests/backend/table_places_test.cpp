#include "backend/table_places.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace loratrain {
namespace {

/// One of 60 tables that ops ask for again and again, or one that hardly ever comes back.
std::string some_table(std::uint64_t key) {
    const bool rare = uniform_int(key, 0, 4) == 0;
    const std::uint64_t which = uniform_int(key, 1, rare ? 1000000 : 60);
    const std::string name = cat(rare ? "rare " : "table ", which, ' ');
    const std::uint64_t size = uniform_int(which, 2, 400);
    std::string table;
    while (table.size() < size) table += name;
    return table;
}

std::size_t size_of(const std::vector<std::string>& tables) {
    std::size_t size = 0;
    for (const std::string& table : tables) size += TablePlaces::size_of(table.size());
    return size;
}

TEST(TablePlaces, NoTableOfAnOpIsOverwrittenBeforeTheOpHasAll) {
    constexpr std::size_t capacity = 16384;
    constexpr std::uint64_t ops = 10000;
    TablePlaces places(capacity);
    std::string memory(capacity, ' ');
    std::size_t stored = 0;
    std::size_t asked = 0;
    for (std::uint64_t op = 0; op < ops; ++op) {
        std::vector<std::string> tables(1 + uniform_int(1, op, 6));
        for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = some_table(mix_key(op, i));
        places.start_op(size_of(tables));
        std::vector<std::size_t> offsets;
        for (const std::string& table : tables) {
            const TablePlaces::Place place = places.find(table);
            ASSERT_EQ(place.offset % TablePlaces::alignment, 0U);
            ASSERT_LE(place.offset + TablePlaces::size_of(table.size()), capacity);
            offsets.push_back(place.offset);
            ++asked;
            if (!place.is_new) continue;
            ++stored;
            std::string written = table;
            written.resize(TablePlaces::size_of(table.size()), '.');
            memory.replace(place.offset, written.size(), written);
        }
        for (std::size_t i = 0; i < tables.size(); ++i) {
            ASSERT_EQ(memory.substr(offsets[i], tables[i].size()), tables[i]) << "op " << op;
        }
    }
    EXPECT_GT(stored, ops / 2);
    EXPECT_GT(asked - stored, ops);
}

TEST(TablePlaces, EqualTablesLieThereOnce) {
    TablePlaces places(64);
    places.start_op(48);
    EXPECT_TRUE(places.find("a").is_new);
    EXPECT_EQ(places.find("b").offset, 16U);
    EXPECT_FALSE(places.find("b").is_new);
    EXPECT_FALSE(places.find("").is_new);
    places.start_op(16);
    EXPECT_FALSE(places.find("a").is_new);
}

TEST(TablePlaces, AnOpThatMightNotFitBeginsAtTheStart) {
    TablePlaces places(64);
    places.start_op(64);
    for (const char* table : {"a", "b", "c"}) places.find(table);
    places.start_op(32);
    EXPECT_TRUE(places.find("c").is_new);
    EXPECT_EQ(places.find("d").offset, 16U);
}

TEST(TablePlaces, RefusesWhatDoesNotFit) {
    TablePlaces places(64);
    EXPECT_THROW(places.start_op(65), Error);
    places.start_op(16);
    EXPECT_THROW(places.find(std::string(65, 'a')), Error);
}

}  // namespace
}  // namespace loratrain
