#pragma once

#include <gtest/gtest.h>

namespace loratrain {

/// What ctest takes as "skipped" (SKIP_RETURN_CODE).
inline constexpr int skip_code = 77;

/// After RUN_ALL_TESTS(): every test that should run was skipped.
inline bool all_skipped() {
    const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
    return tests.skipped_test_count() > 0 &&
           tests.skipped_test_count() == tests.test_to_run_count();
}

}  // namespace loratrain
