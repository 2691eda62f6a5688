#pragma once

#include <gtest/gtest.h>

#include "comm/collective.h"
#include "comm/mpi_session.h"

namespace loratrain::mpi_test {

inline const MpiSession*& session_pointer() {
    static const MpiSession* session = nullptr;
    return session;
}

/// The session of this process, for the tests.
inline const MpiSession& session() {
    return *session_pointer();
}

/// main() of an MPI test program: only the root prints; a failure on any rank fails all.
inline int run(int argc, char** argv) {
    ::testing::InitGoogleTest(&argc, argv);
    const MpiSession mpi(&argc, &argv);
    session_pointer() = &mpi;
    if (!mpi.is_root()) {
        auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
    }
    const int result = RUN_ALL_TESTS();
    if (result != 0 && !mpi.is_root()) std::fprintf(stderr, "rank %d failed\n", mpi.rank());
    return any_rank(mpi, result != 0) ? 1 : 0;
}

}  // namespace loratrain::mpi_test

// NOLINTNEXTLINE(misc-definitions-in-headers): each of the test programs is one file.
int main(int argc, char** argv) {
    return loratrain::mpi_test::run(argc, argv);
}
