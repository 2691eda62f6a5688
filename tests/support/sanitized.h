#pragma once

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

/// So many random cases; a quarter of them under a sanitizer, which looks for other errors.
constexpr int random_cases(int count) {
    return sanitized ? (count + 3) / 4 : count;
}

}  // namespace loratrain
