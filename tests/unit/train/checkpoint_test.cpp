#include "train/checkpoint/checkpoint.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/job_yaml.h"
#include "io/files.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

/// A checkpoint written by hand: job.yaml and one data file.
class FindCheckpoint : public ::testing::Test {
  protected:
    void SetUp() override {
        DatasetJob dataset;
        dataset.name = "data";
        dataset.path = "data.jsonl";
        folder_.job.datasets.push_back(dataset);
        folder_.job.model.weights = "base.h5";
        identity_ = {to_yaml(folder_.job), "weights", {"data"}, {}};
        folder_.write("ckpt/LATEST", "8\n");
        write(8);
        write(4);
    }
    void write(int round) const {
        const std::string dir = "ckpt/" + std::to_string(round) + "/";
        folder_.write(dir + "job.yaml", identity_.job_yaml);
        folder_.write(dir + "first.safetensors", "numbers");
        nlohmann::json manifest;
        manifest["format"] = "loratrain-checkpoint-1";
        manifest["weights_checksum"] = "weights";
        manifest["data_checksums"] = {"data"};
        for (const char* name : {"job.yaml", "first.safetensors"}) {
            manifest["files"][name] = file_checksum(folder_.path(dir + name));
        }
        folder_.write(dir + "manifest.json", manifest.dump());
    }
    std::optional<std::string> find(const std::string& asked = "") const {
        const auto found = find_checkpoint(folder_.job, identity_, asked);
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

    RunFolder folder_;
    RunIdentity identity_;
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
    EXPECT_FALSE(find_checkpoint(folder_.job, identity_, "")->set_back);
    folder_.write("ckpt/8/first.safetensors", "numbert");
    const auto found = find_checkpoint(folder_.job, identity_, "");
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

TEST_F(FindCheckpoint, OtherWeightsDataOrJob) {
    const RunIdentity good = identity_;
    identity_.weights_checksum = "others";
    EXPECT_NE(problem().find("base weights"), std::string::npos);
    identity_.weights_checksum = "weights-config";  // of a checkpoint that knows no config
    EXPECT_EQ(problem(), "");
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

}  // namespace
}  // namespace loratrain::test
