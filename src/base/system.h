#pragma once

#include <chrono>
#include <cstdint>
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

/// Of the process that started this one, as `ps -o comm` has it; "" where that is not known.
std::string parent_name();

/// Value in bytes of a "Name:   123 kB" line of a /proc file; 0 when absent.
std::uint64_t proc_value(const char* file, const std::string& name);

/// Memory of this host that the process may still take, in bytes: what is available, within the
/// limit of its control group; 0 where that is not known.
std::uint64_t available_memory();

/// That all threads of this process have spent on processors.
double processor_seconds();

/// Seconds that a steady clock has run since `start`.
double seconds_since(std::chrono::steady_clock::time_point start);

}  // namespace loratrain
