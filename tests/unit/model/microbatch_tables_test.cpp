#include "model/microbatch_tables.h"

#include "base/error.h"
#include "unit/model/shared_stages.h"
#include "unit/model/small_stage.h"

namespace loratrain::test {
namespace {

using Numbers = std::vector<std::int32_t>;

/// The middle one of three stages: its first layer computes adapters from 1 on, its last one those
/// up to 2.
class Tables : public ::testing::Test {
  protected:
    Tables() : backend_(make_backend("cpu", {1, 0})) {
        stage_ = cut_layers(5, {{1, up_to(1)}, {3, up_to(3)}})[1];
        memory_ = backend_->allocate(table_bytes(only_replica(test_.plan)), "tables");
        tables_ = std::make_unique<MicrobatchTables>(only_replica(test_.plan), stage_, *backend_,
                                                     memory_.data());
    }

    struct Part {
        std::int32_t adapter;
        Numbers samples;
    };
    void set(const std::vector<Part>& parts) {
        Microbatch microbatch;
        for (const auto& [adapter, samples] : parts) {
            Segment& segment = microbatch.segments.emplace_back();
            segment.adapter = static_cast<AdapterId>(adapter);
            for (const std::int32_t tokens : samples) {
                const auto sample = static_cast<std::int32_t>(segment.samples.size());
                segment.samples.push_back({10 * adapter + sample, tokens});
            }
        }
        microbatch.columns = lora_columns(test_.job, only_replica(test_.plan), microbatch.segments);
        packed_ = pack_layout(microbatch);
        tables_->set(test_.job, microbatch,
                     {{}, {}, packed_.positions, packed_.sample_ids, packed_.offsets}, {});
    }

    /// Rows [first, first + count) of the microbatch, in the samples that begin at `offsets`.
    void expect_rows(std::int32_t layer, std::int64_t first, std::int64_t count,
                     const Numbers& offsets) const {
        const LayerRows& rows = tables_->in_layer(layer);
        EXPECT_EQ(rows.first_row, first);
        ASSERT_EQ(rows.tokens, count);
        ASSERT_EQ(rows.offsets, offsets);
        EXPECT_EQ(rows.packed.tokens, count);
        EXPECT_EQ(rows.packed.samples, std::ssize(offsets) - 1);
        EXPECT_EQ(rows.packed.host_offsets, rows.offsets.data());
        const auto stored = [](const std::int32_t* table, std::int64_t size) {
            return Numbers(table, table + size);
        };
        const auto of_microbatch = [&](const Numbers& values) {
            return Numbers(values.begin() + first, values.begin() + first + count);
        };
        EXPECT_EQ(stored(rows.packed.offsets, std::ssize(offsets)), offsets);
        ASSERT_EQ(std::ssize(rows.lengths), rows.packed.samples);
        for (std::size_t s = 0; s < rows.lengths.size(); ++s) {
            EXPECT_EQ(rows.lengths[s], offsets[s + 1] - offsets[s]);
        }
        EXPECT_EQ(stored(rows.packed.positions, count), of_microbatch(packed_.positions));
        EXPECT_EQ(stored(rows.packed.sample_ids, count), of_microbatch(packed_.sample_ids));
    }

    /// The layer's segments: adapters, and their rows one after another from 0.
    void expect_segments(std::int32_t layer, const Numbers& adapters, const Numbers& ends) const {
        const LayerRows& rows = tables_->in_layer(layer);
        ASSERT_EQ(rows.segments.size(), adapters.size());
        ASSERT_EQ(rows.adapters.size(), adapters.size());
        for (std::size_t s = 0; s < adapters.size(); ++s) {
            EXPECT_EQ(number(rows.adapters[s]), adapters[s]);
            EXPECT_EQ(rows.segments[s].slot, static_cast<std::int32_t>(s));
            EXPECT_EQ(rows.segments[s].begin, s == 0 ? 0 : ends[s - 1]);
            EXPECT_EQ(rows.segments[s].end, ends[s]);
        }
    }

    SmallCase test_{small_model(5),
                    {small_adapter("a", 5), small_adapter("b", 7, 0.3), small_adapter("c", 4),
                     small_adapter("d", 2)}};
    std::unique_ptr<Backend> backend_;
    StagePlan stage_;
    Buffer memory_;
    std::unique_ptr<MicrobatchTables> tables_;
    PackedBatch packed_;
};

TEST_F(Tables, SharedLayersHaveTheRowsOfTheirAdapters) {
    set({{0, {4, 3}}, {1, {5}}, {2, {2, 1}}, {3, {6}}});
    expect_rows(1, 0, 21, {0, 4, 7, 12, 14, 15, 21});
    expect_segments(1, {0, 1, 2, 3}, {7, 12, 15, 21});
    expect_rows(0, 7, 14, {0, 5, 7, 8, 14});
    expect_segments(0, {1, 2, 3}, {5, 8, 14});
    EXPECT_EQ(tables_->in_layer(0).columns, (Numbers{5, 12, 16}));
    expect_rows(2, 0, 15, {0, 4, 7, 12, 14, 15});
    expect_segments(2, {0, 1, 2}, {7, 12, 15});
    EXPECT_EQ(tables_->in_layer(2).columns, (Numbers{0, 5, 12}));
    EXPECT_EQ(tables_->in_layer(0).first_sample, 2);
    EXPECT_EQ(tables_->in_layer(1).first_sample, 0);
    EXPECT_EQ(tables_->in_layer(2).first_sample, 0);
    for (const std::int32_t layer : {0, 1, 2}) {
        EXPECT_TRUE(tables_->in_layer(layer).has_dropout);
        EXPECT_EQ(tables_->in_layer(layer).width, tables_->in_layer(1).width);
    }
}

TEST_F(Tables, SharedLayersMayHaveNoRowsOrAll) {
    set({{0, {4, 3}}, {3, {6}}});
    set({{0, {2}}});
    expect_rows(0, 0, 0, {0});
    expect_segments(0, {}, {});
    expect_rows(2, 0, 2, {0, 2});
    set({{3, {1, 1}}});
    expect_rows(0, 0, 2, {0, 1, 2});
    expect_rows(2, 0, 0, {0});
    EXPECT_FALSE(tables_->in_layer(0).has_dropout);
    set({{0, {5}}, {1, {2}}, {3, {1}}});
    expect_rows(0, 5, 3, {0, 2, 3});
    expect_rows(2, 0, 7, {0, 5, 7});
}

TEST_F(Tables, DropoutIsThatOfTheAdaptersComputed) {
    stage_ = cut_layers(5, {{1, up_to(2)}, {3}})[1];
    tables_ = std::make_unique<MicrobatchTables>(only_replica(test_.plan), stage_, *backend_,
                                                 memory_.data());
    set({{1, {3}}, {2, {4}}});
    EXPECT_TRUE(tables_->in_layer(1).has_dropout);
    EXPECT_FALSE(tables_->in_layer(0).has_dropout);
}

TEST_F(Tables, AdaptersOfASharedLayerMustBeNeighbours) {
    set({{2, {3}}, {1, {3}}, {0, {3}}});
    EXPECT_THROW(set({{2, {3}}, {0, {3}}, {1, {3}}}), Error);
    EXPECT_THROW(set({{0, {3}}, {3, {3}}, {1, {3}}}), Error);
}

}  // namespace
}  // namespace loratrain::test
