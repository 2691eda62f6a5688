#include "base/pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace loratrain {
namespace {

/// Whether the system has been asked for large pages at this address.
bool is_advised(const void* address) {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    std::ifstream maps("/proc/self/smaps");
    bool inside = false;
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t begin = 0;
        std::uintptr_t end = 0;
        char dash = 0;
        std::istringstream text(line);
        if (text >> std::hex >> begin >> dash >> end && dash == '-') {
            inside = begin <= wanted && wanted < end;
        } else if (inside && line.starts_with("VmFlags:")) {
            return line.find(" hg") != std::string::npos;
        }
    }
    return false;
}

TEST(LargePages, AreAskedForBehindLargeVectorsAlone) {
    if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
        GTEST_SKIP() << "the system has none";
    }
    constexpr std::size_t small = std::size_t{1} << 18U;
    std::vector<float> values;
    reserve_large(values, small);
    values.assign(small, 1.0F);
    EXPECT_FALSE(is_advised(values.data() + small / 2));
    std::vector<float> large;
    reserve_large(large, 64 * small);
    large.assign(64 * small, 1.0F);
    EXPECT_TRUE(is_advised(large.data() + 32 * small));
    const float* before = large.data();
    reserve_large(large, small);
    EXPECT_EQ(large.data(), before);
}

}  // namespace
}  // namespace loratrain
