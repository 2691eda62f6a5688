#include "data/rollout_folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "support/files.h"
#include "support/problems.h"
#include "test_paths.h"

namespace loratrain {
namespace {

using test::has;
using test::problem_text;
using test::put;
using test::TempDir;

using Ids = std::vector<std::int32_t>;

/// A rollout of one id; `adapter_step` < 0: not said.
std::string rollout(std::int32_t id, std::int32_t adapter_step = -1) {
    std::string line = cat(R"({"input_ids":[0,)", id, R"(],"advantages":[0,1],"logprobs":[0,-1])");
    if (adapter_step >= 0) line += cat(R"(,"adapter_step":)", adapter_step);
    return line + "}\n";
}

std::string rollouts(const Ids& ids) {
    std::string text;
    for (const std::int32_t id : ids) text += rollout(id);
    return text;
}

class RolloutFolderTest : public ::testing::Test {
  protected:
    RolloutFolder open(const RolloutFolder::Start& start = {},
                       std::optional<std::int32_t> max_staleness = {}, bool made_in_job = false) {
        DatasetJob dataset;
        dataset.path = folder();
        dataset.made_in_job = made_in_job;
        return {{dataset, 100, 2, max_staleness}, start};
    }
    std::string folder() const { return dir_.file(""); }
    void put_file(const std::string& name, const std::string& text) { put(folder() + name, text); }

    static std::optional<RolloutFolder::Batch> next_batch(RolloutFolder& from) {
        std::optional<RolloutFolder::Batch> batch = from.next();
        while (!batch && from.reads_on()) batch = from.next();
        return batch;
    }
    /// The ids of the next batch; empty = it is not there.
    static Ids next_ids(RolloutFolder& from) {
        const auto batch = next_batch(from);
        Ids ids;
        if (!batch) return ids;
        EXPECT_EQ(batch->info.samples.size(), batch->samples.size());
        for (const TokenSample& sample : batch->samples) ids.push_back(sample.input_ids[1]);
        return ids;
    }

    TempDir dir_;
};

TEST_F(RolloutFolderTest, FilesInTheOrderOfTheirNumbers) {
    put_file("step-000010.jsonl", rollouts({10}));
    put_file("step-9.jsonl", rollouts({1, 2, 3}));
    put_file("step-11.jsonl.part", rollouts({4}));
    put_file("step--1.jsonl", rollouts({4}));
    put_file("step-x.jsonl", rollouts({4}));
    put_file("notes.jsonl", rollouts({4}));
    RolloutFolder from = open();
    const auto first = from.next();
    ASSERT_TRUE(first);
    EXPECT_EQ(first->info.file, 9);
    EXPECT_EQ(first->info.of_file, 0);
    EXPECT_FALSE(first->info.ends_file);
    const auto second = from.next();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->samples.size(), 1U);
    EXPECT_EQ(second->info.of_file, 1);
    EXPECT_TRUE(second->info.ends_file);
    EXPECT_EQ(next_ids(from), Ids{10});
    EXPECT_EQ(next_ids(from), Ids{});
    EXPECT_FALSE(from.is_over());
    EXPECT_TRUE(has(from.awaited(), "step-11.jsonl"));
    put_file("step-12.jsonl", rollouts({12}));
    EXPECT_EQ(next_ids(from), Ids{12});
}

TEST_F(RolloutFolderTest, EndsWithItsLastFile) {
    put_file("END", "");
    put_file("step-0.jsonl", rollouts({1}));
    RolloutFolder from = open();
    EXPECT_EQ(next_ids(from), Ids{1});
    EXPECT_FALSE(from.is_over()) << "nobody has looked behind the file";
    EXPECT_EQ(next_ids(from), Ids{});
    EXPECT_TRUE(from.is_over());
    put_file("step-1.jsonl", rollouts({2}));
    EXPECT_EQ(next_ids(from), Ids{2});
    EXPECT_FALSE(from.is_over());
}

TEST_F(RolloutFolderTest, GoesOnBehindBatchesThatAreTrained) {
    put_file("step-3.jsonl", rollouts({1, 2, 3, 4, 5}));
    put_file("step-4.jsonl", rollouts({6}));
    RolloutFolder from = open({7, 3, 2});
    EXPECT_EQ(next_ids(from), Ids{5});
    EXPECT_EQ(next_ids(from), Ids{6});
    RolloutFolder behind = open({8, 4, 0});
    EXPECT_EQ(next_ids(behind), Ids{6});
    RolloutFolder more = open({8, 3, 4});
    EXPECT_TRUE(has(problem_text([&] { more.next(); }), "step-3.jsonl: lacks 1 batches"));
    std::filesystem::remove(folder() + "step-3.jsonl");
    RolloutFolder gone = open({7, 3, 2});
    EXPECT_TRUE(has(problem_text([&] { gone.next(); }), "is gone, and 2 of its batches"));
}

TEST_F(RolloutFolderTest, LeavesStaleRolloutsOut) {
    put_file("step-0.jsonl", rollout(1, 0) + rollout(2, 1) + rollout(3, 0) + rollout(4));
    put_file("step-1.jsonl", rollout(5, 0) + rollout(6, 0));
    put_file("step-4.jsonl", rollout(7) + rollout(8, 2) + rollout(9, 1));
    const auto check = [](RolloutFolder& from, const Ids& ids, std::int32_t stale) {
        const auto batch = next_batch(from);
        ASSERT_TRUE(batch);
        Ids found;
        for (const TokenSample& sample : batch->samples) found.push_back(sample.input_ids[1]);
        EXPECT_EQ(found, ids);
        EXPECT_EQ(batch->info.stale, stale);
    };
    RolloutFolder all = open({}, 5);
    check(all, {1, 2}, 0);
    check(all, {3, 4}, 0);
    check(all, {5, 6}, 0);
    check(all, {7, 8}, 0);
    RolloutFolder fresh = open({}, 0);
    check(fresh, {1, 2}, 2);  // 3 and 4 behind it
    check(fresh, {7, 8}, 3);  // the whole of file 1, and 9 behind it
    EXPECT_FALSE(fresh.next());
    for (const RolloutFolder::Start& start :
         {RolloutFolder::Start{1, 0, 1}, RolloutFolder::Start{1, 1, 0}}) {
        RolloutFolder again = open(start, 0);
        check(again, {7, 8}, 3);
        EXPECT_FALSE(again.next());
    }
}

TEST_F(RolloutFolderTest, AFileOfWhichStaleRowsAreLeftIsNotNeededAgain) {
    put_file("step-0.jsonl", rollout(1, 0) + rollout(2, 0) + rollout(3, 0) + rollout(4, 1));
    put_file("step-1.jsonl", rollout(5, 2) + rollout(6, 2) + rollout(7, 0) + rollout(8, 1));
    RolloutFolder from = open({}, 0);
    const auto first = from.next();
    ASSERT_TRUE(first);
    EXPECT_FALSE(first->info.ends_file) << "4 is not too old for step 1";
    EXPECT_EQ(first->info.stale, 0);
    const auto second = from.next();
    ASSERT_TRUE(second);
    EXPECT_EQ(second->samples.size(), 1U);
    EXPECT_TRUE(second->info.ends_file);
    EXPECT_EQ(second->info.stale, 1);
    const auto third = from.next();
    ASSERT_TRUE(third);
    EXPECT_TRUE(third->info.ends_file) << "7 and 8 are too old for step 3";
    EXPECT_EQ(third->info.stale, 2);
    // As a run goes on from what it notes of that batch.
    std::filesystem::remove(folder() + "step-1.jsonl");
    put_file("step-2.jsonl", rollouts({9}));
    RolloutFolder again = open({3, third->info.file + 1, 0}, 1);
    EXPECT_EQ(next_ids(again), Ids{9});
}

TEST_F(RolloutFolderTest, ReadsAtMostOneFileThatIsStaleAtATime) {
    for (const char* name : {"step-0.jsonl", "step-1.jsonl", "step-2.jsonl"}) {
        put_file(name, rollout(1, 0) + rollout(2, 0));
    }
    RolloutFolder from = open({9, 0, 0}, 2);
    for (const std::int32_t left_out : {2, 4, 6}) {
        EXPECT_FALSE(from.next());
        EXPECT_TRUE(from.reads_on());
        EXPECT_FALSE(from.is_over());
        EXPECT_EQ(from.left_out(), left_out);
    }
    put_file("END", "");
    EXPECT_FALSE(from.next());
    EXPECT_FALSE(from.reads_on());
    EXPECT_TRUE(from.is_over());
    EXPECT_EQ(from.left_out(), 6);
}

TEST_F(RolloutFolderTest, FilesThatComeLateAreToldOnce) {
    put_file("step-1.jsonl", rollouts({1}));
    put_file("step-5.jsonl", rollouts({5}));
    RolloutFolder from = open({3, 5, 0});
    EXPECT_EQ(next_ids(from), Ids{5});
    EXPECT_TRUE(from.take_late().empty()) << "a start before has read it";
    put_file("step-4.jsonl", rollouts({4}));
    EXPECT_EQ(next_ids(from), Ids{});
    const std::vector<std::string> late = from.take_late();
    ASSERT_EQ(late.size(), 1U);
    EXPECT_TRUE(has(late[0], "step-4.jsonl"));
    EXPECT_EQ(next_ids(from), Ids{});
    EXPECT_TRUE(from.take_late().empty());
}

TEST_F(RolloutFolderTest, RefusesFiles) {
    put_file("step-0.jsonl", rollout(1) + "{}\n");
    EXPECT_TRUE(has(problem_text([&] { open().next(); }), "step-0.jsonl:2: has no 'input_ids'"));
    put_file("step-0.jsonl", "{\"input_ids\":[1,2]}\n");
    EXPECT_TRUE(has(problem_text([&] { open().next(); }), "step-0.jsonl: holds no rollouts"));
    put_file("step-00.jsonl", rollout(1));
    EXPECT_TRUE(has(problem_text([&] { open().next(); }), "has the number of "));
}

TEST_F(RolloutFolderTest, WaitsForAFolderThatCannotBeListed) {
    put_file("step-0.jsonl", rollouts({1, 2, 3}));
    RolloutFolder from = open();
    EXPECT_EQ(next_ids(from), (Ids{1, 2}));
    EXPECT_EQ(next_ids(from), Ids{3});
    const std::string away = dir_.path() + "-away";
    std::filesystem::rename(dir_.path(), away);
    EXPECT_EQ(next_ids(from), Ids{});
    EXPECT_TRUE(has(from.trouble(), "cannot be read"));
    EXPECT_FALSE(from.is_over());
    RolloutFolder behind_trained = open({1, 0, 1});
    EXPECT_EQ(next_ids(behind_trained), Ids{}) << "nothing says that the file is gone";
    std::filesystem::rename(away, dir_.path());
    put_file("step-1.jsonl", rollouts({4}));
    EXPECT_EQ(next_ids(from), Ids{4});
    EXPECT_EQ(from.trouble(), "");
    EXPECT_EQ(next_ids(behind_trained), Ids{3});
}

/// A checkpoint before them was restored, and the files of its steps are gone.
TEST_F(RolloutFolderTest, FilesOfTheJobAreThoseOfTheirSteps) {
    put_file("step-000004.jsonl", rollouts({40, 41}));
    RolloutFolder from = open({3, 3, 0}, {}, true);
    EXPECT_EQ(next_ids(from), Ids{});
    put_file("step-000003.jsonl", rollouts({30, 31}));
    EXPECT_EQ(next_ids(from), (Ids{30, 31}));
    EXPECT_EQ(next_ids(from), (Ids{40, 41}));
    RolloutFolder given = open({3, 2, 0});
    EXPECT_EQ(next_ids(given), (Ids{30, 31})) << "numbers may be missing in folders of others";
}

}  // namespace
}  // namespace loratrain
