#include "base/system.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace loratrain {
namespace {

TEST(System, AProcessKnowsTheNameOfTheOneThatStartedIt) {
    std::array<char, 16> own{};
    ASSERT_EQ(prctl(PR_GET_NAME, own.data()), 0);
    ASSERT_EQ(prctl(PR_SET_NAME, "the starter"), 0);
    const pid_t child = fork();
    if (child == 0) _exit(parent_name() == "the starter" ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(prctl(PR_SET_NAME, own.data()), 0);
    EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace loratrain
