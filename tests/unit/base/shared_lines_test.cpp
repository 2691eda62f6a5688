#include "base/plain_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace loratrain {
namespace {

using Lines = std::vector<std::string>;

class SharedLinesTest : public ::testing::Test {
  protected:
    SharedLinesTest() { std::filesystem::remove(path_); }
    ~SharedLinesTest() override { std::filesystem::remove(path_); }

    static void append(SharedLines& lines, const std::string& line) {
        lines.append([&](const Lines&) { return line; });
    }

    std::string path_ =
        std::filesystem::temp_directory_path() / ("shared_lines." + std::to_string(::getpid()));
};

TEST_F(SharedLinesTest, AreReadOnceAndOwnOnesNever) {
    SharedLines one(path_);
    SharedLines other(path_);
    EXPECT_EQ(one.read(), Lines{});
    append(one, "a");
    append(one, "b");
    EXPECT_EQ(one.read(), Lines{});
    EXPECT_EQ(other.read(), (Lines{"a", "b"}));
    EXPECT_EQ(other.read(), Lines{});
    append(other, "c");
    EXPECT_EQ(one.read(), Lines{"c"});
}

TEST_F(SharedLinesTest, WhoAppendsSeesWhatOthersHave) {
    SharedLines one(path_);
    SharedLines other(path_);
    append(one, "a");
    Lines seen;
    other.append([&](const Lines& added) -> std::string {
        seen = added;
        return "";
    });
    EXPECT_EQ(seen, Lines{"a"});
    EXPECT_EQ(SharedLines(path_).read(), Lines{"a"});
}

TEST_F(SharedLinesTest, APartOfALineIsNoLine) {
    std::ofstream(path_) << "a\nb";
    SharedLines lines(path_);
    EXPECT_EQ(lines.read(), Lines{"a"});
    append(lines, "c");
    EXPECT_EQ(SharedLines(path_).read(), (Lines{"a", "b", "c"}));
}

TEST_F(SharedLinesTest, WithoutAFileNothingIsKept) {
    for (const std::string& path : {std::string(), std::string("/nowhere/at/all")}) {
        SharedLines lines(path);
        bool asked = false;
        lines.append([&](const Lines& added) -> std::string {
            asked = added.empty();
            return "a";
        });
        EXPECT_TRUE(asked);
        EXPECT_EQ(SharedLines(path).read(), Lines{});
    }
}

TEST_F(SharedLinesTest, ProcessesAgreeOnTheFirst) {
    constexpr int processes = 4;
    constexpr int keys = 50;
    for (int p = 0; p < processes; ++p) {
        if (::fork() != 0) continue;
        SharedLines lines(path_);
        Lines known;
        for (int key = 0; key < keys; ++key) {
            lines.append([&](const Lines& added) -> std::string {
                known.insert(known.end(), added.begin(), added.end());
                const std::string start = std::to_string(key) + " ";
                for (const std::string& line : known) {
                    if (line.starts_with(start)) return "";
                }
                known.push_back(start + std::to_string(p));
                return known.back();
            });
        }
        ::_exit(0);
    }
    while (::wait(nullptr) > 0) {
    }
    const Lines lines = SharedLines(path_).read();
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(keys));
    for (int key = 0; key < keys; ++key) {
        EXPECT_TRUE(lines[static_cast<std::size_t>(key)].starts_with(std::to_string(key) + " "));
    }
}

}  // namespace
}  // namespace loratrain
