#include "data/dataset_files.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/files.h"
#include "support/problems.h"

namespace loratrain::test {
namespace {

EvalSplit fraction(double value) {
    return {0, value};
}

TEST(HeldOutSamples, FractionsAreRoundedUp) {
    EXPECT_EQ(held_out_samples(fraction(0.1), 10), 1);
    EXPECT_EQ(held_out_samples(fraction(0.1), 11), 2);
    EXPECT_EQ(held_out_samples(fraction(1e-6), 2), 1);
    for (std::int64_t percent = 1; percent < 100; ++percent) {
        EXPECT_EQ(held_out_samples(fraction(static_cast<double>(percent) / 100.0), 100), percent);
    }
}

TEST(HeldOutSamples, OneMustBeLeftToTrainOn) {
    EXPECT_EQ(held_out_samples({9, 0.0}, 10), 9);
    EXPECT_EQ(held_out_samples({10, 0.0}, 10), 0);
    EXPECT_EQ(held_out_samples({11, 0.0}, 10), 0);
    EXPECT_EQ(held_out_samples(fraction(0.5), 1), 0);
    EXPECT_EQ(held_out_samples(fraction(0.999), 10), 0);
}

class OpenDatasets : public ::testing::Test {
  protected:
    OpenDatasets() {
        std::string text;
        for (int i = 0; i < 20; ++i) text += cat("{\"input_ids\":[", i, ",1,2]}\n");
        put(dir_.file("a.jsonl"), text);
        job_.path = "tune.yaml";
        for (const char* name : {"file", "split"}) {
            DatasetJob dataset;
            dataset.name = name;
            dataset.path = dir_.file("a.jsonl");
            job_.datasets.push_back(dataset);
        }
        job_.datasets[0].eval_path = dir_.file("a.jsonl");
        job_.datasets[1].eval_split.samples = 6;
    }

    TempDir dir_;
    Job job_;
    DatasetFiles files_;
    Problems problems_;
};

TEST_F(OpenDatasets, FilesAndSplits) {
    open_datasets(job_, 100, files_, problems_);
    ASSERT_TRUE(problems_.empty());
    EXPECT_EQ(dataset_info(files_, DatasetId{0}).train.size(), 20U);
    EXPECT_EQ(dataset_info(files_, DatasetId{0}).eval.size(), 20U);
    EXPECT_EQ(dataset_info(files_, DatasetId{1}).train.size(), 14U);
    EXPECT_EQ(dataset_info(files_, DatasetId{1}).eval.size(), 6U);
    const auto before = files_.eval[1]->positions();
    files_ = {};
    job_.run.seed = 43;
    open_datasets(job_, 100, files_, problems_);
    EXPECT_NE(files_.eval[1]->positions(), before) << "run.seed draws it";
}

TEST_F(OpenDatasets, ASplitOfAllIsAProblemAmongOthers) {
    job_.datasets[0].path = dir_.file("missing.jsonl");
    job_.datasets[1].eval_split.samples = 20;
    open_datasets(job_, 100, files_, problems_);
    ASSERT_EQ(problems_.list().size(), 2U);
    EXPECT_EQ(problems_.list()[1].where, "tune.yaml: datasets.split.eval_split");
    EXPECT_EQ(problems_.list()[1].what,
              cat("leaves nothing to train on; ", dir_.file("a.jsonl"), " has 20 samples"));
}

/// Ranks of other hosts may have none.
TEST_F(OpenDatasets, FoldersThatGrowAreLookedIntoOnOneRankAlone) {
    job_.datasets.resize(2);
    job_.datasets[0] = {};
    job_.datasets[0].name = "tries";
    job_.datasets[0].path = dir_.file("rollouts/");
    job_.datasets[1].name = "denied";
    job_.datasets[1].path = dir_.file("a.jsonl/rollouts/");  // of a file, no folder
    job_.datasets[1].eval_split = {};
    open_datasets(job_, 100, files_, problems_);
    EXPECT_TRUE(problems_.empty());
    EXPECT_TRUE(files_.train[0].grows());
    check_growing_folders(job_, problems_);
    ASSERT_EQ(problems_.list().size(), 2U);
    EXPECT_EQ(problems_.list()[0].where, dir_.file("rollouts/"));
    EXPECT_EQ(problems_.list()[1].where, dir_.file("a.jsonl/rollouts/"));
    EXPECT_TRUE(test::has(problems_.list()[0].what, "is not a folder that exists"));
    std::filesystem::create_directory(job_.datasets[0].path);
    Problems now;
    check_growing_folders(job_, now);
    EXPECT_EQ(now.list().size(), 1U);
}

}  // namespace
}  // namespace loratrain::test
