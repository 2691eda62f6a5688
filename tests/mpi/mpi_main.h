#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "comm/collective.h"
#include "comm/mpi_session.h"
#include "support/skip_code.h"

namespace loratrain::mpi_test {

inline const MpiSession*& session_pointer() {
    static const MpiSession* session = nullptr;
    return session;
}

/// The session that this process is in, for the tests.
inline const MpiSession& session() {
    return *session_pointer();
}

/// Ranks of the first of two sessions that the tests run in at the same time: --split=N, the last
/// argument. 0 = one session of all ranks.
inline int first_ranks(int argc, char** argv) {
    constexpr std::string_view option = "--split=";
    const std::string_view last = argc > 1 ? argv[argc - 1] : "";
    return last.starts_with(option) ? std::stoi(std::string(last.substr(option.size()))) : 0;
}

/// Two sessions run the tests in different orders, so that each meets all kinds of the other's
/// messages.
inline std::optional<MpiSession> part_of(const MpiSession& world, int first_ranks) {
    if (first_ranks == 0) return std::nullopt;
    const int color = world.rank() < first_ranks ? 0 : 1;
    ::testing::GTEST_FLAG(shuffle) = true;
    ::testing::GTEST_FLAG(random_seed) = color + 1;
    return world.split(color);
}

/// main() of an MPI test program: only the roots print; a failure on any rank fails all;
/// skipped is what all ranks skip.
inline int run(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    const MpiRuntime runtime(&argc, &argv);
    const MpiSession& world = runtime.world();
    const std::optional<MpiSession> part = part_of(world, first_ranks(argc, argv));
    session_pointer() = part ? &*part : &world;
    if (!session().is_root()) {
        auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
    }
    const int result = RUN_ALL_TESTS();
    if (result != 0 && !session().is_root()) std::fprintf(stderr, "rank %d failed\n", world.rank());
    if (any_rank(world, result != 0)) return 1;
    return any_rank(world, !all_skipped()) ? 0 : skip_code;
}

}  // namespace loratrain::mpi_test

// NOLINTNEXTLINE(misc-definitions-in-headers): each of the test programs is one file.
int main(int argc, char** argv) {
    return loratrain::mpi_test::run(argc, argv);
}
