#include "train/checkpoint/best_adapter.h"

#include "io/adapters/adapter_file.h"
#include "io/files.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

class BestAdapter : public ::testing::Test {
  protected:
    void SetUp() override { state_.adapters.resize(2); }
    void write(std::int32_t step, float value) {
        state_.adapters[0].best_step = step;
        state_.adapters[0].best_eval_loss = 0.5 * step;
        write_best_adapter(folder_.job, ModelSpec{}, state_.adapters[0], AdapterId{0},
                           {{"x", {1}, {value}}});
    }
    float value() const {
        const SafetensorsFile file(folder_.path("adapters/first/best/adapter_model.safetensors"));
        return file.read_floats("x").at(0);
    }
    bool has(const std::string& name) const { return std::filesystem::exists(folder_.path(name)); }

    RunFolder folder_;
    RunState state_;
};

TEST_F(BestAdapter, IsReplacedAsAWhole) {
    write(3, 1.0F);
    folder_.write("adapters/first/.best.tmp/torn", "half");
    write(5, 2.0F);
    EXPECT_EQ(value(), 2.0F);
    EXPECT_EQ(folder_.read("adapters/first/best/BEST"), "step 5, eval loss 2.5\n");
    EXPECT_TRUE(has("adapters/first/best/adapter_config.json"));
    EXPECT_FALSE(has("adapters/first/best/torn"));
    EXPECT_FALSE(has("adapters/first/.best.tmp"));
}

TEST_F(BestAdapter, GoesBackToTheCheckpoint) {
    write(3, 1.0F);
    make_directory(folder_.path("ckpt/4"));
    keep_best_adapters(folder_.job, state_, folder_.path("ckpt/4"));
    EXPECT_TRUE(has("ckpt/4/first.best"));
    EXPECT_FALSE(has("ckpt/4/second.best"));
    const RunState kept = state_;
    write(5, 2.0F);
    folder_.write("adapters/second/best/BEST", "of a run that was given up");
    restore_best_adapters(folder_.job, ModelSpec{}, kept, folder_.path("ckpt/4"));
    EXPECT_EQ(value(), 1.0F);
    EXPECT_EQ(folder_.read("adapters/first/best/BEST"), "step 3, eval loss 1.5\n");
    EXPECT_FALSE(has("adapters/second/best"));
    restore_best_adapters(folder_.job, ModelSpec{}, RunState{0, 0.0, std::vector<AdapterState>(2)},
                          "");
    EXPECT_FALSE(has("adapters/first/best"));
}

/// What an export renames or rounds is not renamed or rounded again.
TEST_F(BestAdapter, GoesBackAsItWasExported) {
    ModelSpec model;
    model.wrapper = "qwen3_5";
    folder_.job.adapters[0].export_dtype = DType::bf16;
    const auto write_one = [&](float value) {
        state_.adapters[0].best_step = 3;
        write_best_adapter(
            folder_.job, model, state_.adapters[0], AdapterId{0},
            {{"base_model.model.model.layers.1.mlp.up_proj.lora_A.weight", {1, 1}, {value}}});
    };
    const std::string best = "adapters/first/best/";
    write_one(1.0F);
    const std::string weights = folder_.read(best + adapter_weights_name);
    const std::string config = folder_.read(best + "adapter_config.json");
    EXPECT_NE(weights.find("model.language_model.layers.1."), std::string::npos);
    make_directory(folder_.path("ckpt/4"));
    keep_best_adapters(folder_.job, state_, folder_.path("ckpt/4"));
    write_one(2.0F);
    restore_best_adapters(folder_.job, model, state_, folder_.path("ckpt/4"));
    EXPECT_EQ(folder_.read(best + adapter_weights_name), weights);
    EXPECT_EQ(folder_.read(best + "adapter_config.json"), config);
}

/// Consecutive checkpoints share nothing: a damaged place in one is not in the other.
TEST_F(BestAdapter, IsKeptInCopies) {
    const auto keep = [&](const std::string& checkpoint) {
        const std::string made = checkpoint + ".tmp";
        make_directory(folder_.path(made));
        keep_best_adapters(folder_.job, state_, folder_.path(made));
        const std::string sum = file_checksum(folder_.path(made + "/first.best"));
        folder_.write(made + "/state.json", to_json(state_, folder_.job));
        folder_.write(made + "/manifest.json", R"({"files": {"first.best": ")" + sum + "\"}}");
        std::filesystem::rename(folder_.path(made), folder_.path(checkpoint));
        return folder_.read(checkpoint + "/first.best");
    };
    const std::string best = "adapters/first/best/adapter_model.safetensors";
    state_.round = state_.adapters[0].steps = 20;
    write(3, 1.0F);
    const std::string good = keep("ckpt/4");
    EXPECT_EQ(std::filesystem::hard_link_count(folder_.path("ckpt/4/first.best")), 1U);
    std::string damaged = good;
    damaged.back() ^= 1;
    folder_.write(best, damaged);
    EXPECT_EQ(keep("ckpt/8"), good) << "that of the checkpoint before";
    write(7, 2.0F);
    EXPECT_EQ(keep("ckpt/12"), folder_.read(best)) << "a later one";
    folder_.write(best, damaged);
    folder_.write("ckpt/12/first.best", damaged);
    EXPECT_THROW(keep("ckpt/16"), Error);
}

}  // namespace
}  // namespace loratrain::test
