#pragma once

#include <cstdlib>

/// Skips the rest of a test that takes long under a sanitizer, whose other tests run the same code;
/// runs without a sanitizer, and where LORATRAIN_FULL_TESTS is set.
#define LORATRAIN_SKIP_UNDER_SANITIZERS()                         \
    do {                                                          \
        if (::loratrain::sanitized && !::loratrain::full_tests()) \
            GTEST_SKIP() << "slow if sanitized";                  \
    } while (false)

namespace loratrain {

/// Whether this program is built with a sanitizer, under which planning takes many times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

inline bool full_tests() {
    static const bool full = std::getenv("LORATRAIN_FULL_TESTS") != nullptr;
    return full;
}

/// So many random cases where LORATRAIN_FULL_TESTS is set; else a third of them, and a tenth under
/// a sanitizer, which looks for other errors.
inline int random_cases(int count) {
    const int part = full_tests() ? 1 : sanitized ? 10 : 3;
    return (count + part - 1) / part;
}

}  // namespace loratrain
