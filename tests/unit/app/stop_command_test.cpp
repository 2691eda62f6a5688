#include "app/commands.h"

#include <gtest/gtest.h>

namespace loratrain {
namespace {

std::string problem(const std::string& adapter) {
    RunStatus status;
    status.adapters = {{"math", "RUNNING", 1, 9, {}, {}, {}},
                       {"code", "WAITING", 0, 9, {}, {}, {}},
                       {"old", "STOPPED EARLY", 5, 9, {}, {}, {}}};
    try {
        check_can_stop("runs/a", status, adapter);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(StopCommand, UnfinishedAdaptersOnly) {
    EXPECT_EQ(problem("math"), "");
    EXPECT_EQ(problem("code"), "");
    EXPECT_EQ(problem("old"),
              "stop: 'old' of runs/a has ended already: STOPPED EARLY\n"
              "    there is nothing to stop; loratrain status shows every adapter's state");
}

TEST(StopCommand, UnknownNamesNameTheKnown) {
    EXPECT_EQ(problem("maht"),
              "stop: 'maht' is not an adapter of runs/a\n    did you mean 'math'?");
    EXPECT_EQ(problem("x"), "stop: 'x' is not an adapter of runs/a\n    one of: math, code, old");
}

}  // namespace
}  // namespace loratrain
