#include "train/records/exports.h"

#include "adapter/adapter_layout.h"
#include "base/tensor.h"
#include "support/small_model.h"
#include "train/checkpoint/stored_adapter.h"
#include "unit/train/run_folder.h"

namespace loratrain::test {
namespace {

/// A checkpoint in which `first` is done and `second` still runs.
class Exports : public ::testing::Test {
  protected:
    void SetUp() override {
        std::filesystem::create_directories(folder_.path("ckpt/5"));
        for (const AdapterJob& adapter : folder_.job.adapters) {
            write_stored_adapter(folder_.path("ckpt/5/" + adapter.name + ".safetensors"),
                                 sources_of(tensors(adapter)), {});
        }
        state_.adapters.resize(2);
        state_.adapters[0].status = AdapterStatus::done;
        for (AdapterState& adapter : state_.adapters) adapter.steps = 5;
        write_export(folder_.job, model_, state_.adapters[0], AdapterId{0},
                     tensors(folder_.job.adapters[0]));
        good_ = contents();
    }
    std::vector<NamedTensor> tensors(const AdapterJob& adapter) const {
        auto all = adapter_tensors(adapter, model_, {0, 2}, StatePart::parameters);
        for (NamedTensor& tensor : all) {
            tensor.values.assign(static_cast<std::size_t>(element_count(tensor.shape)), 0.25F);
        }
        return all;
    }
    void mend() const { mend_exports(folder_.job, model_, state_, folder_.path("ckpt/5")); }
    std::vector<std::string> contents() const {
        std::vector<std::string> all;
        for (const char* file : files) all.push_back(folder_.read(cat("adapters/first/", file)));
        return all;
    }
    auto changed() const {
        return std::filesystem::last_write_time(folder_.path("adapters/first/DONE"));
    }

    static constexpr const char* files[] = {"adapter_model.safetensors", "adapter_config.json",
                                            "DONE"};
    RunFolder folder_;
    ModelSpec model_ = small_model(2);
    RunState state_;
    std::vector<std::string> good_;
};

TEST_F(Exports, AreLeftAloneWhereTheyAreWhole) {
    const auto before = changed();
    mend();
    EXPECT_EQ(changed(), before);
    EXPECT_FALSE(std::filesystem::exists(folder_.path("adapters/second/DONE")));
}

TEST_F(Exports, AreWrittenAgainWhereTheyAreDamaged) {
    for (std::size_t file = 0; file < std::size(files); ++file) {
        const std::string name = cat("adapters/first/", files[file]);
        std::filesystem::remove(folder_.path(name));
        mend();
        EXPECT_EQ(contents(), good_) << name << " missing";
    }
    for (const std::size_t file : {0U, 1U}) {
        const std::string name = cat("adapters/first/", files[file]);
        folder_.write(name, good_[file].substr(0, good_[file].size() / 2));
        mend();
        EXPECT_EQ(contents(), good_) << name << " cut off";
    }
    std::string flipped = good_[0];
    flipped.back() = static_cast<char>(flipped.back() ^ 1);
    folder_.write("adapters/first/adapter_model.safetensors", flipped);
    mend();
    EXPECT_EQ(contents(), good_);
}

TEST_F(Exports, OfAdaptersThatEndedWithoutAStepAreNone) {
    state_.adapters[0].steps = 0;
    std::filesystem::remove_all(folder_.path("adapters/first"));
    mend();
    EXPECT_FALSE(std::filesystem::exists(folder_.path("adapters/first")));
}

}  // namespace
}  // namespace loratrain::test
