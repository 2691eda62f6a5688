#pragma once

#include <chrono>
#include <string>

namespace loratrain {

/// Seconds since 1970.
double unix_time();
/// That moment in local time, in a format of strftime (at most 63 characters come out).
std::string local_time(double unix_seconds, const char* format);
/// Of this machine; "unknown" when it has none.
std::string host_name();
/// An environment variable; "" where it is not set.
std::string environment(const char* name);

/// Seconds that a steady clock has run since `start`.
double seconds_since(std::chrono::steady_clock::time_point start);

}  // namespace loratrain
