#include "train/orders/grow_run.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "comm/collective.h"
#include "config/job_yaml.h"
#include "data/dataset_files.h"
#include "io/files.h"
#include "mpi/shared_temp_dir.h"
#include "plan/deploy/make_plan.h"
#include "plan/text/plan_text.h"
#include "support/problems.h"
#include "support/small_model.h"

namespace loratrain::mpi_test {
namespace {

using test::has;
using test::small_model;

namespace fs = std::filesystem;

/// A job of one adapter and one dataset, planned for all ranks; only the root and the last rank
/// have its data open.
class GrowRun : public ::testing::Test {
  protected:
    GrowRun() {
        if (session().is_root()) {
            fs::create_directories(dir_ + "/run");
            write("a.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[4,5]}\n");
            write("b.jsonl", "{\"input_ids\":[6,7,8,9]}\n");
            write("long.jsonl", "{\"input_ids\":[6,7,8,9,10,11,12,13,14]}\n");
            write("tune.yaml",
                  "model: {weights: base.h5}\n"
                  "run: {dir: run}\n"
                  "parallel: {microbatch_tokens: 8}\n"
                  "datasets: {a: {path: a.jsonl}}\n"
                  "defaults: {r: 2, global_batch_size: 2}\n"
                  "adapters: [{name: one}]\n");
        }
        barrier(session());
        job_ = read_job(dir_ + "/tune.yaml", {});
        with_tokens_ = session().rank() + 1 == session().size();
        const ModelSpec model = small_model(session().size());  // a layer for each
        std::string text;
        agree(session(), [&] {
            Problems problems;
            if (session().is_root() || with_tokens_) {
                open_datasets(job_, model.vocab_size, files_, problems);
            }
            problems.throw_if_any();
            if (session().is_root()) text = plan(model);
        });
        plan_ = plan_from_text(broadcast_text(session(), text));
    }
    /// On the root.
    std::string plan(const ModelSpec& model) {
        datasets_.push_back(dataset_info(files_, DatasetId{0}));
        identity_ = {to_yaml(job_), "weights", {files_.train[0].checksum()}, {""}};
        Cluster cluster;
        cluster.ranks = session().size();
        return to_text(make_plan(job_, model, datasets_, cluster));
    }
    void write(const std::string& name, const std::string& text) const {
        std::ofstream(dir_ + "/" + name) << text;
    }
    void grow(const std::string& text) {
        const bool root = session().is_root();
        RunGrowth growth({job_, plan_, files_, datasets_, identity_, with_tokens_}, root);
        agree(session(), [&] { growth.check({"new.yaml", text}); });
        agree(session(), [&] {
            if (root) accept();
        });
        growth.take(broadcast_text(session(), root ? growth.plan() : ""));
    }
    void accept() {
        ++accepted_;
        EXPECT_TRUE(session().is_root());
        if (!refusal_.empty()) throw InputError("new.yaml", refusal_);
    }
    std::string problems(const std::string& text) {
        const std::string before = to_yaml(job_) + to_text(plan_);
        std::string found;
        try {
            grow(text);
        } catch (const InputError& error) {
            found = error.what();
        }
        EXPECT_EQ(to_yaml(job_) + to_text(plan_), before);
        EXPECT_EQ(files_.train.size(), session().is_root() || with_tokens_ ? 1U : 0U);
        return found;
    }

    SharedTempDir folder_;
    std::string dir_ = folder_.path();
    Job job_;
    Plan plan_;
    DatasetFiles files_;
    std::vector<DatasetInfo> datasets_;
    RunIdentity identity_;
    bool with_tokens_ = false;
    int accepted_ = 0;
    std::string refusal_;
};

TEST_F(GrowRun, AlikeOnEveryRank) {
    grow("adapters: [{name: two, r: 3}]\n");
    grow("datasets: {b: {path: b.jsonl}}\nadapters: [{name: three, dataset: b}]\n");
    ASSERT_EQ(job_.adapters.size(), 3U);
    EXPECT_EQ(job_.adapters[1].global_batch_size, 2);
    EXPECT_EQ(job_.adapters[2].dataset, DatasetId{1});
    ASSERT_EQ(plan_.adapters.size(), 3U);
    EXPECT_EQ(plan_.adapters[2].samples, 1);
    EXPECT_EQ(plan_.longest_sample, 4);
    for (const std::string& text : gather_texts(session(), to_yaml(job_) + to_text(plan_))) {
        EXPECT_EQ(text, to_yaml(job_) + to_text(plan_));
    }
    if (session().is_root() || with_tokens_) {
        ASSERT_EQ(files_.train.size(), 2U);
        EXPECT_EQ(files_.train[1].read(0).input_ids.size(), 4U);
    } else {
        EXPECT_TRUE(files_.train.empty());
    }
    if (!session().is_root()) return;
    EXPECT_EQ(datasets_.size(), 2U);
    EXPECT_EQ(identity_.job_yaml, to_yaml(job_));
    EXPECT_EQ(accepted_, 2);
    EXPECT_EQ(identity_.data_checksums.size(), 2U);
    EXPECT_EQ(identity_.eval_checksums.size(), 2U);
    EXPECT_EQ(to_yaml(read_job(dir_ + "/run/resolved.yaml", {})), to_yaml(job_));
}

TEST_F(GrowRun, SplitsAreAlikeToo) {
    grow("datasets: {s: {path: a.jsonl, eval_split: 0.5}}\nadapters: [{name: two, dataset: s}]\n");
    std::string held_out = "no file";
    if (session().is_root() || with_tokens_) {
        ASSERT_TRUE(files_.eval.at(1));
        EXPECT_EQ(files_.train[1].infos().size(), 1U);
        ASSERT_EQ(files_.eval[1]->positions().size(), 1U);
        held_out = cat("{\"s\":[", files_.eval[1]->positions()[0], "]}\n");
    }
    const std::string of_root = broadcast_text(session(), held_out);
    if (with_tokens_) {
        EXPECT_EQ(held_out, of_root);
    }
    if (!session().is_root()) return;
    EXPECT_EQ(datasets_[1].eval.size(), 1U);
    EXPECT_NE(identity_.eval_checksums[1], "");
    EXPECT_EQ(read_text(dir_ + "/run/held_out.json"), held_out);
}

TEST_F(GrowRun, ProblemsChangeNothing) {
    EXPECT_TRUE(has(problems("adapters: [{name: one}]\n"), "'one' is used twice"));
    EXPECT_TRUE(has(problems("datasets: {c: {path: missing.jsonl}}\n"
                             "adapters: [{name: two, dataset: c, init_from: nowhere}]\n"),
                    "missing.jsonl"));
    EXPECT_TRUE(has(problems("datasets: {c: {path: b.jsonl, eval_split: 1}}\n"
                             "adapters: [{name: two, dataset: c}]\n"),
                    "new.yaml: datasets.c.eval_split: leaves nothing to train on"));
    EXPECT_TRUE(
        has(problems("datasets: {c: {path: long.jsonl}}\n"
                     "adapters: [{name: two, dataset: c, r: 17}]\n"),
            "more tokens than parallel.microbatch_tokens 8; the longest is number 0 (from 0), "
            "with 9 tokens"));
    EXPECT_TRUE(has(problems("adapters: [{name: two, r: 17}]\n"), "rank 17 is larger than"));
    EXPECT_TRUE(has(problems("adapters: {"), "not valid YAML"));
    EXPECT_EQ(accepted_, 0);
}

/// Several files, one on the other; nothing is taken before it is wanted.
TEST_F(GrowRun, WhatIsCheckedIsTakenOneByOne) {
    const std::string before = to_yaml(job_) + to_text(plan_);
    const bool root = session().is_root();
    RunGrowth growth({job_, plan_, files_, datasets_, identity_, with_tokens_}, root);
    growth.check(
        {"b.yaml", "datasets: {b: {path: b.jsonl}}\nadapters: [{name: two, dataset: b}]\n"});
    EXPECT_THROW(growth.check({"bad.yaml", "adapters: [{name: two}]\n"}), InputError);
    if (root) {
        EXPECT_THROW(growth.check({"long.yaml",
                                   "datasets: {c: {path: long.jsonl}}\n"
                                   "adapters: [{name: long, dataset: c}]\n"}),
                     InputError);
    }
    growth.check({"c.yaml", "adapters: [{name: three, dataset: b}]\n"});
    growth.check({"d.yaml", "adapters: [{name: four, dataset: a}]\n"});
    ASSERT_EQ(growth.size(), 3U);
    EXPECT_EQ(to_yaml(job_) + to_text(plan_), before);
    for (int i = 0; i < 2; ++i) growth.take(broadcast_text(session(), root ? growth.plan() : ""));
    EXPECT_EQ(growth.size(), 1U);
    ASSERT_EQ(job_.adapters.size(), 3U);
    EXPECT_EQ(job_.adapters[2].dataset, DatasetId{1});
    ASSERT_EQ(plan_.adapters.size(), 3U);
    for (const std::string& text : gather_texts(session(), to_yaml(job_) + to_text(plan_))) {
        EXPECT_EQ(text, to_yaml(job_) + to_text(plan_));
    }
    EXPECT_EQ(files_.train.size(), root || with_tokens_ ? 2U : 0U);
    if (!root) return;
    EXPECT_EQ(datasets_.size(), 2U);
    EXPECT_EQ(identity_.job_yaml, to_yaml(job_));
}

TEST_F(GrowRun, WhatIsRefusedChangesNothing) {
    refusal_ = "the disk is full";
    EXPECT_TRUE(has(problems("adapters: [{name: two}]\n"), "new.yaml: the disk is full"));
    EXPECT_FALSE(fs::exists(dir_ + "/run/resolved.yaml"));
    refusal_.clear();
    grow("adapters: [{name: two}]\n");
    EXPECT_EQ(job_.adapters.size(), 2U);
}

}  // namespace
}  // namespace loratrain::mpi_test
