#include "base/plain_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/files.h"
#include "support/problems.h"

namespace loratrain::test {
namespace {

class PlainFile : public ::testing::Test {
  protected:
    std::string refusal(const std::string& name, int flags) const {
        return problem_text([&] { ::close(open_plain_file(dir_.file(name), flags)); });
    }

    TempDir dir_;
};

TEST_F(PlainFile, IsMadeReadAndAppendedTo) {
    const std::string path = dir_.file("a");
    append_to_plain_file(path, "one\n");
    append_to_plain_file(path, "two\n");
    EXPECT_EQ(get(path), "one\ntwo\n");
    EXPECT_EQ(not_a_plain_file(path), "");
    EXPECT_EQ(not_a_plain_file(dir_.file("none")), "");
    EXPECT_EQ(not_a_folder(path), "a file");
    EXPECT_EQ(not_a_folder(dir_.path()), "");
    EXPECT_EQ(open_plain_file(dir_.file("none"), O_RDONLY), -1);
    EXPECT_THROW(append_to_plain_file(dir_.file("no/a"), "x"), Error);
}

TEST_F(PlainFile, NothingElseIsOpenedOrChanged) {
    put(dir_.file("precious"), "kept");
    ASSERT_EQ(::symlink("precious", dir_.file("link").c_str()), 0);
    ASSERT_EQ(::symlink("nowhere", dir_.file("dangling").c_str()), 0);
    ASSERT_EQ(::mkfifo(dir_.file("pipe").c_str(), 0600), 0);
    ASSERT_EQ(::mkdir(dir_.file("folder").c_str(), 0700), 0);
    for (const int flags : {O_RDONLY, O_WRONLY | O_CREAT | O_TRUNC, O_WRONLY | O_APPEND, O_RDWR}) {
        EXPECT_TRUE(has(refusal("link", flags), "link: is a symbolic link, must be a plain file"));
        EXPECT_TRUE(has(refusal("dangling", flags), "dangling: is a symbolic link"));
        EXPECT_TRUE(has(refusal("pipe", flags), "pipe: is a pipe")) << "and does not wait";
        EXPECT_TRUE(has(refusal("folder", flags), "folder: is a folder"));
    }
    EXPECT_TRUE(has(problem_text([] { open_plain_file("/dev/null", O_WRONLY); }), "is a device"));
    EXPECT_THROW(append_to_plain_file(dir_.file("link"), "x"), InputError);
    EXPECT_EQ(get(dir_.file("precious")), "kept");
    EXPECT_FALSE(std::filesystem::exists(dir_.file("nowhere")));
}

}  // namespace
}  // namespace loratrain::test
