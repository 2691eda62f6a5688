#include "base/clear_errors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/error.h"

namespace loratrain {
namespace {

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
