#include "train/services/loss_references.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/files.h"
#include "support/files.h"

namespace loratrain::test {
namespace {

class KeptReferencesTest : public ::testing::Test {
  protected:
    KeptReferencesTest() {
        job_.run.dir = folder_.path() + "/run";
        job_.datasets.resize(2);
    }
    KeptReferences of(std::int32_t dataset, const std::string& ref_adapter = "") const {
        return {job_, identity_, {DatasetId{dataset}, ref_adapter}};
    }

    TempDir folder_;
    Job job_;
    RunIdentity identity_{"", "w", {"a", "b"}, {"", "e"}};
};

TEST_F(KeptReferencesTest, ComeBackToTheBit) {
    const ReferenceValues losses{{0.1 + 0.2, 1e-300, std::nan(""), 123456.789}, {1, 3, 3, 4}};
    EXPECT_FALSE(of(0).read(4));
    of(0).write(losses);
    const auto read = of(0).read(4);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->ends, losses.ends);
    for (const std::size_t i : {0, 1, 3}) EXPECT_EQ(read->values[i], losses.values[i]);
    EXPECT_TRUE(std::isnan(read->values[2]));
    EXPECT_FALSE(of(0).read(5));
    EXPECT_FALSE(of(1).read(4));
}

TEST_F(KeptReferencesTest, AreOfTheirWeightsAndData) {
    const std::string path = of(1).path();
    identity_.weights_checksum = "other";
    EXPECT_NE(of(1).path(), path);
    identity_.weights_checksum = "w";
    job_.datasets[1].max_seq_len += 1;
    EXPECT_NE(of(1).path(), path);
    job_.datasets[1].max_seq_len -= 1;
    identity_.eval_checksums[1] = "f";
    EXPECT_NE(of(1).path(), path);
}

TEST_F(KeptReferencesTest, AreOfWhatTheirAdapterHolds) {
    const auto write = [](const std::string& dir, const std::string& tensors) {
        std::filesystem::create_directories(dir);
        write_text_atomic(dir + "/adapter_config.json", "{}");
        write_text_atomic(dir + "/adapter_model.safetensors", tensors);
    };
    const std::string first = folder_.path() + "/first";
    const std::string second = folder_.path() + "/second";
    write(first, "abc");
    write(second, "abc");
    const std::string path = of(0, first).path();
    EXPECT_NE(path, of(0).path());
    EXPECT_EQ(path, of(0, second).path());
    write(first, "abd");
    EXPECT_NE(path, of(0, first).path());
}

TEST_F(KeptReferencesTest, DamagedFilesAreNotRead) {
    of(0).write({{1.0, 2.0}, {1, 2}});
    write_text_atomic(of(0).path(), "1.0\nx\n");
    EXPECT_FALSE(of(0).read(2));
}

}  // namespace
}  // namespace loratrain::test
