#include "base/error.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

namespace loratrain {
namespace {

TEST(Problem, TextHasPlaceValueAndHint) {
    EXPECT_EQ(to_string(Problem{"a.yaml:3", "r: 0 is out of range", "give at least 1"}),
              "a.yaml:3: r: 0 is out of range\n    give at least 1");
    EXPECT_EQ(to_string(Problem{"a.yaml:3", "bad", ""}), "a.yaml:3: bad");
    EXPECT_EQ(to_string(Problem{"", "bad", "hint"}), "bad\n    hint");
}

TEST(InputError, CarriesEveryProblemAndPrintsThemAll) {
    const InputError error({{"a:1", "first", ""}, {"a:2", "second", "hint"}});
    ASSERT_EQ(error.problems().size(), 2U);
    EXPECT_EQ(error.problems()[1].where, "a:2");
    EXPECT_STREQ(error.what(), "a:1: first\na:2: second\n    hint");
}

TEST(InputError, OfOneProblem) {
    const InputError error("file", "missing", "make it");
    ASSERT_EQ(error.problems().size(), 1U);
    EXPECT_EQ(error.problems()[0].where, "file");
    EXPECT_EQ(error.problems()[0].what, "missing");
    EXPECT_EQ(error.problems()[0].hint, "make it");
}

TEST(Problems, ThrowsOnlyWhenThereIsOne) {
    Problems problems;
    EXPECT_TRUE(problems.empty());
    EXPECT_NO_THROW(problems.throw_if_any());
    problems.add("a", "b");
    EXPECT_FALSE(problems.empty());
    EXPECT_THROW(problems.throw_if_any(), InputError);
}

TEST(Problems, TakesOverThoseOfAnotherError) {
    Problems problems;
    problems.add("x", "own", "");
    problems.add(InputError({{"a:1", "first", ""}, {"a:2", "second", ""}}));
    try {
        problems.throw_if_any();
        FAIL() << "did not throw";
    } catch (const InputError& error) {
        ASSERT_EQ(error.problems().size(), 3U);
        EXPECT_EQ(error.problems()[0].where, "x");
        EXPECT_EQ(error.problems()[2].where, "a:2");
    }
}

TEST(Check, PassesSilently) {
    EXPECT_NO_THROW(LORATRAIN_CHECK(1 + 1 == 2, "arithmetic"));
    EXPECT_NO_THROW(LORATRAIN_CHECK(true));
}

TEST(Check, NamesExpressionFileAndValues) {
    const int rows = 3;
    try {
        LORATRAIN_CHECK(rows == 4, "rows ", rows, ", expected ", 4);
        FAIL() << "did not throw";
    } catch (const Error& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("error_test.cpp:"), std::string::npos) << text;
        EXPECT_NE(text.find("check failed: rows == 4: rows 3, expected 4"), std::string::npos)
            << text;
    }
}

TEST(Check, EvaluatesItsMessageOnlyOnFailure) {
    int calls = 0;
    const auto message = [&] { return ++calls; };
    LORATRAIN_CHECK(calls == 0, message());
    EXPECT_EQ(calls, 0);
    EXPECT_THROW(LORATRAIN_CHECK(calls == 1, message()), Error);
    EXPECT_EQ(calls, 1);
}

TEST(Check, IsNoInputError) {
    try {
        LORATRAIN_CHECK(false);
        FAIL() << "did not throw";
    } catch (const InputError&) {
        FAIL() << "a broken invariant is not the user's fault";
    } catch (const Error& error) {
        EXPECT_EQ(std::strstr(error.what(), ": false:"), nullptr);
        EXPECT_NE(std::strstr(error.what(), "check failed: false"), nullptr);
    }
}

TEST(InputError, ANulCharacterDoesNotCutTheText) {
    const std::string name("nul\0after", 9);
    EXPECT_STREQ(InputError("file:3", "no '" + name + "'", "hint").what(),
                 "file:3: no 'nul\\x00after'\n    hint");
}

TEST(Clearly, ErrorsOfTheFileSystemSayWhatToDo) {
    const auto text = [](const std::string& path) -> std::string {
        try {
            clearly([&] { static_cast<void>(std::filesystem::exists(path)); });
        } catch (const InputError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(text("/"), "");
    const std::string found = text("/x/" + std::string(5000, 'y') + "/costs.json");
    EXPECT_NE(found.find("/costs.json (5014 characters): File name too long"), std::string::npos);
    EXPECT_NE(found.find("give a shorter path"), std::string::npos);
    EXPECT_LT(found.size(), 300U);
    EXPECT_THROW(clearly([] { throw Error("other"); }), Error);
    const auto fails = [](std::errc code, const std::string& path) {
        clearly([&] {
            throw std::filesystem::filesystem_error("x", path, std::make_error_code(code));
        });
    };
    EXPECT_THROW(fails(std::errc::io_error, "/a"), Error);
    try {
        fails(std::errc::no_such_file_or_directory, "");
        FAIL() << "did not throw";
    } catch (const InputError& error) {
        EXPECT_STREQ(error.what(),
                     "working directory: No such file or directory\n    the working directory has "
                     "been removed; change to another one");
    }
}

}  // namespace
}  // namespace loratrain
