#include "data/loader.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace loratrain::test {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr AdapterId first_adapter{0};
constexpr AdapterId second_adapter{1};

Segment segment(AdapterId adapter, std::vector<SampleRef> samples) {
    return {adapter, 0, std::move(samples)};
}

class LoaderTest : public ::testing::Test {
  protected:
    void SetUp() override {
        put(dir_.file("a.jsonl"),
            "{\"input_ids\":[1,2,3],\"labels\":[-100,-100,3]}\n{\"input_ids\":[4,5]}\n");
        put(dir_.file("b.jsonl"), "{\"input_ids\":[6,7]}\n{\"input_ids\":[8]}\n");
        put(dir_.file("eval.jsonl"), "{\"input_ids\":[9,10]}\n");
        files_.train.push_back(open("a.jsonl"));
        files_.train.push_back(open("b.jsonl"));
        files_.eval.push_back(std::make_unique<Dataset>(open("eval.jsonl")));
        files_.eval.push_back(nullptr);
        window_.microbatches.push_back(
            {{segment(first_adapter, {{1, 2}, {0, 3}}), segment(second_adapter, {{0, 2}})}});
        window_.microbatches.push_back({{segment(second_adapter, {{1, 1}})}});
    }
    Dataset open(const std::string& name) const { return {dir_.file(name), DatasetJob(), 100}; }

    TempDir dir_;
    DatasetFiles files_;
    std::vector<DatasetId> datasets_{DatasetId{0}, DatasetId{1}};
    Window window_;
};

TEST_F(LoaderTest, Layout) {
    const PackedBatch batch = pack_layout(window_.microbatches[0]);
    EXPECT_EQ(batch.positions, (Ids{0, 1, 0, 1, 2, 0, 1}));
    EXPECT_EQ(batch.sample_ids, (Ids{1, 1, 0, 0, 0, 0, 0}));
    EXPECT_EQ(batch.offsets, (Ids{0, 2, 5, 7}));
    EXPECT_TRUE(batch.token_ids.empty());
    EXPECT_TRUE(batch.targets.empty());
    EXPECT_EQ(pack_layout({}).offsets, Ids{0});
}

TEST_F(LoaderTest, ReadsAWindowInOrder) {
    Loader loader(files_, datasets_, true);
    loader.start(window_);
    const PackedBatch first = loader.next();
    EXPECT_EQ(first.token_ids, (Ids{4, 5, 1, 2, 3, 6, 7}));
    EXPECT_EQ(first.targets, (Ids{5, -100, -100, 3, -100, 7, -100}));
    EXPECT_EQ(first.offsets, (Ids{0, 2, 5, 7}));
    const PackedBatch second = loader.next();
    EXPECT_EQ(second.token_ids, Ids{8});
    EXPECT_EQ(second.targets, Ids{-100});
    EXPECT_THROW(loader.next(), Error);
}

/// What has been read ahead, or is still to be read of the window before, stays.
TEST_F(LoaderTest, FilesAreAddedBetweenTwoWindows) {
    put(dir_.file("c.jsonl"), "{\"input_ids\":[11,12]}\n");
    Loader loader(files_, datasets_, true, 1);
    window_.begins = true;
    loader.start(window_);
    EXPECT_EQ(loader.next().token_ids, (Ids{4, 5, 1, 2, 3, 6, 7}));
    loader.grow([&] {
        files_.train.push_back(open("c.jsonl"));
        files_.eval.push_back(nullptr);
        return std::vector<DatasetId>{DatasetId{0}, DatasetId{1}, DatasetId{2}};
    });
    Window next;
    next.begins = false;
    next.microbatches.push_back(
        {{segment(AdapterId{2}, {{0, 2}}), segment(first_adapter, {{1, 2}})}});
    loader.start(next);
    EXPECT_EQ(loader.next().token_ids, Ids{8});
    EXPECT_EQ(loader.next().token_ids, (Ids{11, 12, 4, 5}));
}

TEST_F(LoaderTest, WeightsAreThoseOfTheTargets) {
    put(dir_.file("b.jsonl"),
        "{\"input_ids\":[6,7,8],\"weights\":[9,0.5,2]}\n{\"input_ids\":[8]}\n");
    files_.train[1] = open("b.jsonl");
    window_.microbatches[0].segments[1].samples = {{0, 4}, {1, 1}};
    Loader loader(files_, datasets_, true);
    loader.start(window_);
    const PackedBatch batch = loader.next();
    EXPECT_EQ(batch.targets, (Ids{5, -100, -100, 3, -100, 7, 8, -100, -100, -100}));
    EXPECT_EQ(batch.weights, (std::vector<float>{1, 1, 1, 1, 1, 0.5F, 2, 1, 1, 1}));
    EXPECT_TRUE(loader.next().weights.empty());
}

TEST_F(LoaderTest, AdvantagesAreThoseOfTheTargets) {
    put(dir_.file("b.jsonl"),
        "{\"input_ids\":[6,7,8],\"advantages\":[9,0.5,-2],\"logprobs\":[-9,-1,-0.25]}\n"
        "{\"input_ids\":[8],\"advantages\":[1],\"logprobs\":[0]}\n");
    files_.train[1] = open("b.jsonl");
    window_.microbatches[0].segments[1].samples = {{0, 4}, {1, 1}};
    Loader loader(files_, datasets_, true);
    loader.start(window_);
    const PackedBatch batch = loader.next();
    EXPECT_EQ(batch.targets, (Ids{5, -100, -100, 3, -100, 7, 8, -100, -100, -100}));
    EXPECT_EQ(batch.advantages, (std::vector<float>{0, 0, 0, 0, 0, 0.5F, -2, 0, 0, 0}));
    EXPECT_EQ(batch.logprobs, (std::vector<float>{0, 0, 0, 0, 0, -1, -0.25F, 0, 0, 0}));
    EXPECT_TRUE(batch.weights.empty());
}

TEST_F(LoaderTest, PadsShorterSamples) {
    window_.microbatches[0].segments[0].samples = {{1, 4}, {0, 3}};
    Loader loader(files_, datasets_, true);
    loader.start(window_);
    const PackedBatch batch = loader.next();
    EXPECT_EQ(batch.token_ids, (Ids{4, 5, 0, 0, 1, 2, 3, 6, 7}));
    EXPECT_EQ(batch.targets, (Ids{5, -100, -100, -100, -100, 3, -100, 7, -100}));
    EXPECT_EQ(batch.positions, (Ids{0, 1, 2, 3, 0, 1, 2, 0, 1}));
    EXPECT_EQ(batch.offsets, (Ids{0, 4, 7, 9}));
}

TEST_F(LoaderTest, LayoutOnlyForStagesInTheMiddle) {
    Loader loader(files_, datasets_, false);
    loader.start(window_);
    const PackedBatch batch = loader.next();
    EXPECT_TRUE(batch.token_ids.empty());
    EXPECT_TRUE(batch.targets.empty());
    EXPECT_EQ(batch.positions.size(), 7U);
}

TEST_F(LoaderTest, EvaluationReadsTheOtherFile) {
    Window evaluation;
    evaluation.microbatches.push_back({{segment(first_adapter, {{0, 2}})}});
    evaluation.microbatches.push_back({{segment(second_adapter, {{0, 2}})}});
    for (Microbatch& microbatch : evaluation.microbatches) microbatch.evaluation = true;
    Loader loader(files_, datasets_, true);
    loader.start(evaluation);
    EXPECT_EQ(loader.next().token_ids, (Ids{9, 10}));
    EXPECT_THROW(loader.next(), Error);
}

TEST_F(LoaderTest, QueueIsShorterThanTheWindow) {
    Window longer;
    for (int i = 0; i < 200; ++i) {
        longer.microbatches.push_back({{segment(first_adapter, {{i % 2, i % 2 == 0 ? 3 : 2}})}});
    }
    Loader loader(files_, datasets_, true, 1);
    loader.start(longer);
    for (int i = 0; i < 200; ++i) {
        EXPECT_EQ(loader.next().token_ids, i % 2 == 0 ? (Ids{1, 2, 3}) : (Ids{4, 5}));
    }
}

TEST_F(LoaderTest, StartDropsWhatWasLeft) {
    Loader loader(files_, datasets_, true, 1);
    EXPECT_THROW(loader.next(), Error);
    for (int i = 0; i < 20; ++i) {
        loader.start(window_);
        EXPECT_EQ(loader.next().offsets.size(), 4U);
    }
    const Window empty;
    loader.start(empty);
    EXPECT_THROW(loader.next(), Error);
}

TEST_F(LoaderTest, ErrorsComeAfterTheGoodBatches) {
    window_.microbatches[1].segments[0].samples[0] = {0, 1};
    Loader loader(files_, datasets_, true);
    loader.start(window_);
    EXPECT_NO_THROW(loader.next());
    EXPECT_THROW(loader.next(), Error);
    EXPECT_THROW(loader.next(), Error);
}

TEST_F(LoaderTest, DamagedFileIsReported) {
    put(dir_.file("b.jsonl"), "{}");
    Loader loader(files_, datasets_, true);
    loader.start(window_);
    EXPECT_THROW(loader.next(), InputError);
}

}  // namespace
}  // namespace loratrain::test
