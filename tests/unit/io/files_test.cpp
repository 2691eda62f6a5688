#include "io/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>

#include "io/checksum.h"
#include "support/files.h"
#include "support/problems.h"

namespace loratrain::test {
namespace {

TEST(FilesTest, PlaceOfAFileIsChecked) {
    const TempDir dir;
    put(dir.file("a.txt"), "");
    EXPECT_NO_THROW(check_place_of_file(dir.file("a.txt")));
    EXPECT_NO_THROW(check_place_of_file(dir.file("new.txt")));
    EXPECT_NO_THROW(check_place_of_file("new.txt"));
    const auto problem = [](const std::string& path) {
        return problem_text([&] { check_place_of_file(path); });
    };
    EXPECT_TRUE(has(problem(dir.path()), dir.path() + ": is a directory"));
    EXPECT_TRUE(has(problem(dir.file("no/b.txt")), "no/b.txt: its folder is not a directory"));
    EXPECT_TRUE(has(problem(dir.file("a.txt/b")), "a.txt/b: its folder is not a directory"));
    ASSERT_EQ(::mkfifo(dir.file("pipe").c_str(), 0600), 0);
    EXPECT_TRUE(has(problem(dir.file("pipe")), "pipe: is a device, pipe or socket"));
    EXPECT_TRUE(has(problem("/dev/full"), "/dev/full: is a device"));
}

TEST(FilesTest, FreeSpaceIsChecked) {
    const TempDir dir;
    const auto refusal = [](const std::string& path) -> std::string {
        try {
            check_space(path, std::uint64_t{1} << 62U);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    for (const std::string& path : {dir.file("a"), dir.file("no/folder/a"), dir.file("a/")}) {
        EXPECT_NO_THROW(check_space(path, 1));
        EXPECT_TRUE(has(refusal(path), path + ": needs 4194304.0 TiB, only "));
    }
    EXPECT_TRUE(has(refusal("a"), "a: needs "));
}

TEST(FilesTest, DirectoriesAreWrittenAsAWhole) {
    const TempDir dir;
    const std::string path = dir.file("a");
    make_directory(dir.file(".a.tmp"));
    put(dir.file(".a.tmp/torn"), "half");
    write_directory_atomic(path + "/", [](const std::string& to) { put(to + "/one", "1"); });
    write_directory_atomic(path, [&](const std::string& to) {
        EXPECT_EQ(get(path + "/one"), "1");
        put(to + "/two", "2");
    });
    const auto fail = [&] {
        write_directory_atomic(path, [](const std::string& to) {
            put(to + "/three", "3");
            throw Error("the disk is full");
        });
    };
    EXPECT_THROW(fail(), Error);
    EXPECT_EQ(dir.names(), std::vector<std::string>{"a"});
    EXPECT_EQ(get(path + "/two"), "2");
    EXPECT_FALSE(std::filesystem::exists(path + "/one"));
    EXPECT_FALSE(std::filesystem::exists(path + "/torn"));
    EXPECT_FALSE(std::filesystem::exists(path + "/three"));
    remove_directory_atomic(path);
    EXPECT_EQ(dir.names(), std::vector<std::string>{});
}

TEST(FilesTest, WritesAndReadsText) {
    const TempDir dir;
    const std::string path = dir.file("a.txt");
    write_text_atomic(path, "first");
    write_text_atomic(path, std::string("second\0with zero", 16));
    EXPECT_EQ(read_text(path), std::string("second\0with zero", 16));
    EXPECT_EQ(dir.names(), std::vector<std::string>{"a.txt"});
}

TEST(FilesTest, ReplacesText) {
    const TempDir dir;
    const std::string path = dir.file("a.txt");
    replace_text(path, "first and longer");
    replace_text(path, "second");
    EXPECT_EQ(read_text(path), "second");
    EXPECT_EQ(dir.names(), std::vector<std::string>{"a.txt"});
    EXPECT_THROW(replace_text(dir.file("none/a.txt"), "x"), Error);
}

TEST(FilesTest, ReadingNamesThePath) {
    const TempDir dir;
    EXPECT_TRUE(has(problem_text([&] { read_text(dir.file("none")); }), "none: cannot be read"));
    EXPECT_TRUE(has(problem_text([&] { read_text(dir.path()); }), "is not a regular file"));
}

TEST(FilesTest, DirectoriesAreAskedForTheirFiles) {
    const TempDir dir;
    put(dir.file("a"), "x");
    EXPECT_NO_THROW(require_directory(dir.path(), "give one", {"a"}));
    EXPECT_EQ(problem_text([&] {
                  require_directory(dir.path(), "give one", {"a", "b", "c"});
              }),
              dir.path() + ": has no b and no c\n    give one\n");
    EXPECT_EQ(problem_text([&] { require_directory(dir.file("a"), "give one", {"b"}); }),
              dir.file("a") + ": is not a directory\n    give one\n");
}

TEST(FilesTest, AFileIsNoPlaceOfADirectory) {
    const TempDir dir;
    put(dir.file("a"), "x");
    std::filesystem::create_symlink(dir.file("a"), dir.file("link"));
    for (const std::string path : {"a", "a/b/c", "a/", "link"}) {
        const auto message = [&](auto&& work) {
            return problem_text([&] { work(dir.file(path)); });
        };
        const std::string refusal = message(check_place_of_directory);
        EXPECT_TRUE(has(refusal, "directory cannot be created: ")) << refusal;
        EXPECT_TRUE(has(refusal, " is not a directory\n")) << refusal;
        EXPECT_EQ(message(make_directory), refusal);
    }
    EXPECT_NO_THROW(check_place_of_directory(dir.file("new/one")));
    EXPECT_NO_THROW(check_place_of_directory(dir.path()));
    EXPECT_FALSE(std::filesystem::exists(dir.file("new")));
}

TEST(FilesTest, FailedWriteLeavesTheOldFile) {
    const TempDir dir;
    const std::string path = dir.file("a.txt");
    put(path, "old");
    EXPECT_THROW(write_file_atomic(path,
                                   [](const std::string& temporary) {
                                       put(temporary, "half");
                                       throw Error("stopped");
                                   }),
                 Error);
    EXPECT_EQ(get(path), "old");
    EXPECT_EQ(dir.names(), std::vector<std::string>{"a.txt"});
}

TEST(FilesTest, WriteIntoMissingDirectoryNamesThePath) {
    const TempDir dir;
    try {
        write_text_atomic(dir.file("none/a.txt"), "x");
        FAIL();
    } catch (const Error& error) {
        EXPECT_TRUE(has(error.what(), "none/a.txt"));
        EXPECT_TRUE(has(error.what(), "No such file"));
    }
}

TEST(FilesTest, FullDiskIsAnErrorAndLeavesNothing) {
    const TempDir dir;
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    EXPECT_THROW(write_text_atomic(dir.file("big"), std::string(100000, 'x')), Error);
    EXPECT_THROW(replace_text(dir.file("big"), std::string(100000, 'x')), Error);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_TRUE(dir.names().empty());
}

TEST(FilesTest, RemovesUnfinishedWritesOnly) {
    const TempDir dir;
    put(dir.file("a.txt"), "whole");
    put(dir.file("a.txt.tmp123"), "half");
    make_directory(dir.file("b.tmp"));
    EXPECT_EQ(remove_unfinished_writes(dir.path()),
              std::vector<std::string>{dir.file("a.txt.tmp123")});
    EXPECT_EQ(dir.names(), (std::vector<std::string>{"a.txt", "b.tmp"}));
}

TEST(FilesTest, MakesDirectories) {
    const TempDir dir;
    make_directory(dir.file("a/b/c"));
    make_directory(dir.file("a/b/c"));
    EXPECT_TRUE(std::filesystem::is_directory(dir.file("a/b/c")));
    put(dir.file("f"), "");
    EXPECT_TRUE(has(problem_text([&] { make_directory(dir.file("f/g")); }), "cannot be created"));
}

TEST(FilesTest, ChecksumOfAFile) {
    const TempDir dir;
    const std::string text(3000000, 'q');
    put(dir.file("a"), text);
    Checksum checksum;
    checksum.update(text.data(), text.size());
    EXPECT_EQ(file_checksum(dir.file("a")), checksum.hex());
    put(dir.file("e"), "");
    EXPECT_EQ(file_checksum(dir.file("e")), "ef46db3751d8e999");
}

TEST(FilesTest, CopiesShareNothing) {
    const TempDir dir;
    put(dir.file("a"), std::string(3000000, 'x'));
    EXPECT_EQ(copy_bytes(dir.file("a"), dir.file("b")), file_checksum(dir.file("a")));
    EXPECT_EQ(file_checksum(dir.file("b")), file_checksum(dir.file("a")));
    EXPECT_EQ(std::filesystem::hard_link_count(dir.file("b")), 1U);
    put(dir.file("a"), "y");
    EXPECT_EQ(std::filesystem::file_size(dir.file("b")), 3000000U);
    EXPECT_THROW(copy_bytes(dir.file("none"), dir.file("c")), InputError);
    EXPECT_EQ(dir.names(), (std::vector<std::string>{"a", "b"}));
}

TEST(FilesTest, UnfinishedWritesGoAtAllDepths) {
    const TempDir dir;
    for (const char* folder : {"1/8", "1/9.tmp", "2"}) {
        std::filesystem::create_directories(dir.file(folder));
        put(dir.file(folder) + "/best.yaml.tmp12-34", "half");
        put(dir.file(folder) + "/whole.yaml", "whole");
    }
    std::filesystem::create_directory_symlink(dir.file("2"), dir.file("1/8/link"));
    remove_unfinished_below(dir.file("1"));
    remove_unfinished_below(dir.file("none"));
    EXPECT_FALSE(std::filesystem::exists(dir.file("1/8/best.yaml.tmp12-34")));
    EXPECT_FALSE(std::filesystem::exists(dir.file("1/9.tmp")));
    EXPECT_TRUE(std::filesystem::exists(dir.file("1/8/whole.yaml")));
    EXPECT_TRUE(std::filesystem::exists(dir.file("2/best.yaml.tmp12-34"))) << "behind a link";
}

}  // namespace
}  // namespace loratrain::test
