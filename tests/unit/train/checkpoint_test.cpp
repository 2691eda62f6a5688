#include "train/checkpoint/checkpoint_reader.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/tensor.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "support/small_model.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/stored_adapter.h"
#include "train/checkpoint/worker_checkpoints.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

/// Checkpoints written by hand.
class FindCheckpoint : public ::testing::Test {
  protected:
    void SetUp() override {
        DatasetJob dataset;
        dataset.name = "data";
        dataset.path = "data.jsonl";
        folder_.job.datasets.push_back(dataset);
        folder_.job.model.weights = "base.h5";
        for (AdapterJob& adapter : folder_.job.adapters) adapter.max_steps = total_steps;
        identity_ = {to_yaml(folder_.job), "weights", {"data"}, {}};
        plan_.model = small_model(1);
        plan_.adapters = {{"first", 8, 2, total_steps}, {"second", 8, 2, total_steps}};
        folder_.write("ckpt/LATEST", "8\n");
        write(8);
        write(4);
    }
    /// Both adapters took all steps; `first` has a best state.
    void write(int round) const {
        const std::string dir = dir_of(round);
        RunState state;
        state.round = round;
        state.adapters.resize(2);
        for (AdapterState& adapter : state.adapters) adapter.steps = round;
        folder_.write(dir + "job.yaml", identity_.job_yaml);
        folder_.write(dir + "state.json", to_json(state, folder_.job));
        for (const AdapterJob& adapter : folder_.job.adapters) write_adapter_of(dir, adapter, {});
        write_safetensors(folder_.path(dir + "first.best"),
                          tensors(folder_.job.adapters[0], std::span(stored_parts).first(1)));
        write_manifest(round);
    }
    /// With checksums of what is there now.
    void write_manifest(int round) const {
        const std::string dir = dir_of(round);
        nlohmann::json manifest;
        manifest["format"] = "loratrain-checkpoint-1";
        manifest["weights_checksum"] = "weights";
        manifest["data_checksums"] = {"data"};
        for (const char* name :
             {"job.yaml", "state.json", "first.safetensors", "second.safetensors", "first.best"}) {
            manifest["files"][name] = file_checksum(folder_.path(dir + name));
        }
        folder_.write(dir + "manifest.json", manifest.dump());
    }
    void write_adapter_of(const std::string& dir, const AdapterJob& adapter,
                          std::map<std::string, std::string> metadata) const {
        metadata.insert({{"applied_steps", "8"}, {"skipped_steps", "0"}});
        write_safetensors(folder_.path(dir + adapter.name + ".safetensors"),
                          tensors(adapter, stored_parts), metadata);
    }
    std::vector<NamedTensor> tensors(const AdapterJob& adapter,
                                     std::span<const StoredPart> parts) const {
        std::vector<NamedTensor> all;
        for (const StoredPart& part : parts) {
            for (NamedTensor& tensor : adapter_tensors(adapter, plan_.model, {0, 1}, part.part)) {
                tensor.name += part.suffix;
                tensor.values.assign(static_cast<std::size_t>(element_count(tensor.shape)), 0.5F);
                all.push_back(std::move(tensor));
            }
        }
        return all;
    }
    static std::string dir_of(int round) { return "ckpt/" + std::to_string(round) + "/"; }
    std::optional<std::string> find(const std::string& asked = "") const {
        const auto found = find_checkpoint(folder_.job, plan_, identity_, asked);
        return found ? std::optional(found->path) : std::nullopt;
    }
    /// Text of the problems that finding raises.
    std::string problem(const std::string& asked = "") const {
        try {
            find(asked);
        } catch (const InputError& error) {
            return error.what();
        }
        return "";
    }

    static constexpr std::int32_t total_steps = 8;

    RunFolder folder_;
    RunIdentity identity_;
    Plan plan_;
};

TEST_F(FindCheckpoint, LatestOrTheOneAskedFor) {
    EXPECT_EQ(find(), folder_.path("ckpt/8"));
    EXPECT_EQ(find(folder_.path("ckpt/4")), folder_.path("ckpt/4"));
    folder_.write("ckpt/LATEST", "4\n");
    EXPECT_EQ(find(), folder_.path("ckpt/4"));
    std::filesystem::remove(folder_.path("ckpt/LATEST"));
    EXPECT_EQ(find(), folder_.path("ckpt/8"));
    std::filesystem::remove_all(folder_.path("ckpt"));
    EXPECT_EQ(find(), std::nullopt);
}

TEST_F(FindCheckpoint, TheOneBeforeADamagedOne) {
    EXPECT_FALSE(find_checkpoint(folder_.job, plan_, identity_, "")->set_back);
    folder_.write("ckpt/8/first.safetensors", "numbert");
    const auto found = find_checkpoint(folder_.job, plan_, identity_, "");
    EXPECT_EQ(found->path, folder_.path("ckpt/4"));
    EXPECT_TRUE(found->set_back);
    ASSERT_EQ(found->damaged.size(), 1U);
    EXPECT_NE(found->damaged[0].find(folder_.path("ckpt/8/first.safetensors")), std::string::npos);
    std::filesystem::remove_all(folder_.path("ckpt/8"));
    EXPECT_EQ(find(), folder_.path("ckpt/4"));
    folder_.write("ckpt/LATEST", "");
    EXPECT_EQ(find(), folder_.path("ckpt/4"));
    folder_.write("ckpt/4/manifest.json", "{\"format\": ");
    EXPECT_NE(problem().find("--restart never"), std::string::npos);
}

TEST_F(FindCheckpoint, OfWorkersTheNewestOfEachAdapter) {
    EXPECT_FALSE(has_worker_checkpoints(folder_.job));
    const auto move = [&](int round, const std::string& root) {
        folder_.write(root + "/LATEST", std::to_string(round) + "\n");
        std::filesystem::rename(folder_.path(dir_of(round)),
                                folder_.path(root + "/" + std::to_string(round)));
    };
    std::filesystem::remove(folder_.path("ckpt/LATEST"));
    move(4, "ckpt/start-2-worker-1");
    move(8, "ckpt/start-1-worker-0");
    folder_.write("ckpt/start-3-worker-0/nothing", "");
    folder_.write("ckpt/start-x-worker-0/nothing", "");
    EXPECT_TRUE(has_worker_checkpoints(folder_.job));
    const FormerRun former = find_former_run(folder_.job, plan_, identity_);
    EXPECT_EQ(former.starts, 3);
    EXPECT_EQ(former.state.round, 8);
    ASSERT_EQ(former.stored.size(), 2U);
    const std::string newest = folder_.path("ckpt/start-1-worker-0/8");
    EXPECT_EQ(former.checkpoints, (std::vector<std::string>{newest, newest}));
    EXPECT_EQ(former.state.adapters[1].steps, 8);
    FormerCheckpoints stored(former.stored);
    const auto exists = [&](const char* root) {
        return std::filesystem::exists(folder_.path(root));
    };
    stored.remove_superseded({4, 3});
    EXPECT_TRUE(exists("ckpt/start-2-worker-1/4"));
    stored.remove_superseded({8, 4});
    EXPECT_FALSE(exists("ckpt/start-2-worker-1"));
    EXPECT_TRUE(exists("ckpt/start-1-worker-0/8"));
    stored.remove_superseded({8, 9});
    EXPECT_FALSE(exists("ckpt/start-1-worker-0"));
    EXPECT_EQ(worker_checkpoint_root(folder_.job, 4, 2), folder_.path("ckpt/start-4-worker-2"));
}

/// Two adapters that moved together, in a checkpoint of that move.
TEST_F(FindCheckpoint, OfAMoveUntilWorkersHaveSavedAllOfIt) {
    const std::string root = move_checkpoint_root("ckpt/start-1-worker-0", 2);
    folder_.write(root + "/LATEST", "8\n");
    std::filesystem::rename(folder_.path(dir_of(8)), folder_.path(root + "/8"));
    std::filesystem::remove_all(folder_.path(dir_of(4)));
    std::filesystem::remove(folder_.path("ckpt/LATEST"));
    const std::string path = folder_.path(root + "/8");
    const FormerRun former = find_former_run(folder_.job, plan_, identity_);
    EXPECT_EQ(former.starts, 1);
    EXPECT_EQ(former.checkpoints, (std::vector<std::string>{path, path}));
    FormerCheckpoints stored({});
    stored.add(path, AdapterId{1}, 8);
    stored.add(path, AdapterId{0}, 7);
    stored.remove_superseded({8, 7});
    EXPECT_TRUE(std::filesystem::exists(path));
    stored.remove_superseded({6, 8});
    EXPECT_TRUE(std::filesystem::exists(path));
    stored.remove_superseded({7, 8});
    EXPECT_FALSE(std::filesystem::exists(folder_.path(root)));
}

TEST_F(FindCheckpoint, OfWorkersAlsoWhatWasTrainedWithoutThem) {
    const FormerRun former = find_former_run(folder_.job, plan_, identity_);
    EXPECT_EQ(former.starts, 0);
    EXPECT_EQ(former.checkpoints.front(), folder_.path("ckpt/8"));
    FormerCheckpoints(former.stored).remove_superseded({8, 8});
    EXPECT_EQ(find(), std::nullopt);
    const FormerRun none = find_former_run(folder_.job, plan_, identity_);
    EXPECT_TRUE(is_untouched(none.state.adapters.front()));
    EXPECT_EQ(none.checkpoints, std::vector<std::string>(2));
}

TEST_F(FindCheckpoint, DamageNamesTheFile) {
    folder_.write("ckpt/8/first.safetensors", "numbert");
    EXPECT_NE(problem(folder_.path("ckpt/8")).find(folder_.path("ckpt/8/first.safetensors")),
              std::string::npos);
    std::filesystem::remove(folder_.path("ckpt/8/first.safetensors"));
    EXPECT_NE(problem(folder_.path("ckpt/8")).find("missing"), std::string::npos);
    folder_.write("ckpt/8/manifest.json", "{\"format\": ");
    EXPECT_NE(problem(folder_.path("ckpt/8")).find(folder_.path("ckpt/8/manifest.json")),
              std::string::npos);
    EXPECT_EQ(problem(folder_.path("ckpt/8")).find("json.exception"), std::string::npos);
    folder_.write("ckpt/8/manifest.json", "{\"format\": \"loratrain-checkpoint-9\"}");
    EXPECT_NE(problem(folder_.path("ckpt/8")).find("format"), std::string::npos);
    folder_.write("ckpt/8/manifest.json", R"({"format": "loratrain-checkpoint-1", "files": {}})");
    EXPECT_NE(problem(folder_.path("ckpt/8")).find("manifest.json: is damaged: key 'weights_ch"),
              std::string::npos);
    std::filesystem::remove_all(folder_.path("ckpt/8"));
    EXPECT_NE(problem(folder_.path("ckpt/8")).find(folder_.path("ckpt/8")), std::string::npos);
    EXPECT_EQ(find(folder_.path("ckpt/4")), folder_.path("ckpt/4"));
}

TEST_F(FindCheckpoint, WrongContentsWithRightChecksums) {
    const AdapterJob& second = folder_.job.adapters[1];
    const auto state_with = [&](const char* from, const char* to) {
        std::string text = folder_.read("ckpt/8/state.json");
        ASSERT_NE(text.find(from), std::string::npos) << from;
        text.replace(text.find(from), std::string(from).size(), to);
        folder_.write("ckpt/8/state.json", text);
    };
    AdapterJob other = second;
    other.r = second.r + 1;
    const std::pair<std::function<void()>, std::string> cases[] = {
        {[&] {
             write_adapter_of("ckpt/8/", second, {{"applied_steps", "abc"}});
         },
         "'abc'"},
        {[&] {
             write_adapter_of("ckpt/8/", second, {{"skipped_steps", "-1"}});
         },
         "'-1'"},
        {[&] {
             write_adapter_of("ckpt/8/", second, {{"applied_steps", "1099511627776"}});
         },
         "applied_steps is '1099511627776'"},
        {[&] { write_adapter_of("ckpt/8/", other, {}); }, "must be F32 ["},
        {[&] { folder_.write("ckpt/8/second.safetensors", "numbers"); }, "second.safetensors"},
        {[&] { folder_.write("ckpt/8/first.best", ""); }, "first.best"},
        {[&] {
             write_safetensors(folder_.path("ckpt/8/first.best"), tensors(second, stored_parts));
         },
         "first.best: has "},
        {[&] { folder_.write("ckpt/8/job.yaml", "{"); }, "job.yaml: is damaged"},
        {[&] { state_with("\"round\": 8", "\"round\": 9"); }, "round 9, not of 8"},
        {[&] { state_with("\"steps\": 8", "\"steps\": -8"); }, ".steps is -8"},
        {[&] { state_with("RUNNING", "GONE"); }, ".status is GONE"}};
    for (const auto& [damage, what] : cases) {
        write(8);
        EXPECT_EQ(find(), folder_.path("ckpt/8"));
        damage();
        write_manifest(8);
        const auto found = find_checkpoint(folder_.job, plan_, identity_, "");
        EXPECT_EQ(found->path, folder_.path("ckpt/4")) << what;
        ASSERT_EQ(found->damaged.size(), 1U) << what;
        EXPECT_NE(found->damaged[0].find(what), std::string::npos) << found->damaged[0];
        EXPECT_NE(problem(folder_.path("ckpt/8")).find(what), std::string::npos) << what;
    }
    write(8);
    plan_.adapters[0].total_steps = 7;
    EXPECT_EQ(find(), folder_.path("ckpt/4"));
}

TEST_F(FindCheckpoint, OtherWeightsDataOrJob) {
    const RunIdentity good = identity_;
    identity_.weights_checksum = "others";
    EXPECT_NE(problem().find("another base"), std::string::npos);
    identity_ = good;
    identity_.data_checksums = {"others"};
    EXPECT_NE(problem().find("training data"), std::string::npos);
    Job changed = folder_.job;
    changed.adapters[1].learning_rate = 0.5;
    identity_ = good;
    identity_.job_yaml = to_yaml(changed);
    EXPECT_NE(problem().find("adapters.second.learning_rate"), std::string::npos);
    identity_ = good;
    identity_.data_checksums = {"data", "added"};
    EXPECT_EQ(problem(), "");
    identity_.data_checksums = {"added", "data"};
    EXPECT_NE(problem().find("training data"), std::string::npos);
    identity_.data_checksums = {};
    EXPECT_NE(problem().find("training data"), std::string::npos);
    identity_ = good;
    changed = folder_.job;
    changed.logging.every_steps = 7;
    identity_.job_yaml = to_yaml(changed);
    EXPECT_EQ(problem(), "");
}

/// One flipped bit of LATEST.
TEST_F(FindCheckpoint, ALatestThatNamesNoCheckpoint) {
    for (const char* said : {"2", "6", "9", "x", ""}) {
        folder_.write("ckpt/LATEST", said);
        const auto found = find_checkpoint(folder_.job, plan_, identity_, "");
        EXPECT_EQ(found->path, folder_.path("ckpt/8")) << said;
        EXPECT_FALSE(found->set_back);
        EXPECT_NE(found->note.find("of which there is no checkpoint; the newest, 8, is tried"),
                  std::string::npos)
            << found->note;
    }
    folder_.write("ckpt/LATEST", "8\n");
    EXPECT_EQ(find_checkpoint(folder_.job, plan_, identity_, "")->note, "");
    folder_.write("ckpt/LATEST", "4\n");
    const auto named = find_checkpoint(folder_.job, plan_, identity_, "");
    EXPECT_EQ(named->path, folder_.path("ckpt/4"));
    EXPECT_NE(named->note.find("says 4; 8, which is newer, is not used"), std::string::npos);
    folder_.write("ckpt/4/first.safetensors", "numbert");
    EXPECT_EQ(find(), folder_.path("ckpt/8")) << "the one it names is damaged";
    std::filesystem::remove_all(folder_.path("ckpt/4"));
    std::filesystem::remove_all(folder_.path("ckpt/8"));
    EXPECT_NE(problem().find("has no checkpoint, though"), std::string::npos);
}

/// Nothing has a checksum of the manifest: it may be what has changed.
TEST_F(FindCheckpoint, OneOfAnotherRunBesideOneOfThisRunIsDamaged) {
    const std::string manifest = folder_.read("ckpt/8/manifest.json");
    std::string flipped = manifest;
    flipped.replace(flipped.find(":\"weights\""), 10, ":\"weightr\"");
    folder_.write("ckpt/8/manifest.json", flipped);
    const auto found = find_checkpoint(folder_.job, plan_, identity_, "");
    EXPECT_EQ(found->path, folder_.path("ckpt/4"));
    ASSERT_EQ(found->damaged.size(), 1U);
    EXPECT_NE(found->damaged[0].find("another base"), std::string::npos);
    std::filesystem::remove_all(folder_.path("ckpt/4"));
    EXPECT_NE(problem().find("was written for another base"), std::string::npos);
}

TEST_F(FindCheckpoint, WhatACheckpointTakesFromTheOneBeforeIsWhole) {
    const auto copy = [&] {
        std::filesystem::create_directories(folder_.path("next"));
        return StoredFiles(folder_.path("ckpt")).copy("second.safetensors", folder_.path("next"));
    };
    const std::string whole = folder_.read("ckpt/8/second.safetensors");
    const std::string checksum = file_checksum(folder_.path("ckpt/8/second.safetensors"));
    EXPECT_EQ(copy(), checksum);
    EXPECT_EQ(folder_.read("next/second.safetensors"), whole);
    folder_.write("ckpt/8/second.safetensors", "numbert");
    EXPECT_EQ(copy(), checksum) << "checkpoint 4 has the same";
    EXPECT_EQ(folder_.read("next/second.safetensors"), whole);
    folder_.write("ckpt/4/second.safetensors", "numbert");
    EXPECT_EQ(copy(), "");
    EXPECT_FALSE(std::filesystem::exists(folder_.path("next/second.safetensors")));
}

int priority_of_this_thread() {
    return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
}

/// Notes the priority of the threads that warn.
class WarnersPriority : public std::stringbuf {
  public:
    WarnersPriority() : before_(std::cerr.rdbuf(this)) {}
    ~WarnersPriority() override { std::cerr.rdbuf(before_); }
    std::set<int> seen;

  protected:
    std::streamsize xsputn(const char* text, std::streamsize count) override {
        seen.insert(priority_of_this_thread());
        return std::stringbuf::xsputn(text, count);
    }

  private:
    std::streambuf* before_;
};

TEST_F(FindCheckpoint, IsWrittenAtFullPriorityWhereNothingTrainsMeanwhile) {
    folder_.write("ckpt/8/second.safetensors", "damaged");  // a warning of who writes
    const int usual = priority_of_this_thread();
    for (const Beside beside : {Beside::training, Beside::nothing}) {
        const WarnersPriority warners;
        BackgroundCheckpoint files(folder_.job, plan_, identity_, 9, "", beside);
        files.keep(AdapterId{1});
        files.finish();
        const int lower = std::min(usual + 10, 19);
        EXPECT_EQ(warners.seen, std::set{beside == Beside::training ? lower : usual});
    }
}

TEST_F(FindCheckpoint, HasChecksumsOfWhatWasWritten) {
    plan_.replicas.resize(1);
    plan_.replicas[0].stages.resize(1);
    plan_.replicas[0].stages[0].layer_count = 1;
    const AdapterLayout layout(folder_.job.adapters[1], plan_.model, {0, 1});
    const auto write_next = [&](std::int32_t round, const std::function<void()>& meanwhile) {
        BackgroundCheckpoint files(folder_.job, plan_, identity_, round);
        files.keep(AdapterId{0});
        for (const StoredPart& part : stored_parts) {
            AdapterParts::ByRank values;
            values[0].assign(static_cast<std::size_t>(layout.count(part.part)), 0.25F);
            files.add({AdapterId{1}, part.part, PartUse::checkpoint}, std::move(values), {3, 0});
        }
        files.finish();
        meanwhile();
        RunState state;
        state.round = round;
        state.adapters.resize(2);
        for (AdapterState& adapter : state.adapters) adapter.steps = total_steps;
        files.complete(state);
        files.finish();
    };
    write_next(9, [] {});
    EXPECT_EQ(find(), folder_.path("ckpt/9"));
    for (const char* name : {"first.safetensors", "second.safetensors", "state.json"}) {
        EXPECT_EQ(StoredFiles(folder_.path("ckpt")).checksum(name),
                  file_checksum(folder_.path(cat("ckpt/9/", name))));
    }
    const std::string changed = "ckpt/10.tmp/second.safetensors";
    write_next(10, [&] {
        std::string text = folder_.read(changed);
        text.back() = static_cast<char>(text.back() + 1);
        folder_.write(changed, text);
    });
    EXPECT_EQ(find(), folder_.path("ckpt/9"));
}

}  // namespace
}  // namespace loratrain::test
