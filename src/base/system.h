#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace loratrain {

/// What the operating system knows: time, names, memory.

/// Seconds since 1970.
double unix_time();
/// A moment in local time, in a format of strftime; at most 63 characters.
std::string local_time(double unix_seconds, const char* format);
/// Seconds that a steady clock has run since `start`.
double seconds_since(std::chrono::steady_clock::time_point start);
/// Seconds that all threads of this process have spent on processors.
double processor_seconds();

/// Name of this machine; "unknown" if it has none.
std::string host_name();
/// Value of an environment variable; "" if it is not set.
std::string environment(const char* name);
/// Name of the parent process, as `ps -o comm` shows it; "" if not known.
std::string parent_name();

/// Value in bytes of a "Name:   123 kB" line of a /proc file; 0 if absent.
std::uint64_t proc_value(const char* file, const std::string& name);
/// Bytes of host memory that this process may still take, within the limit of its control group;
/// 0 if not known.
std::uint64_t available_memory();

/// Resident memory of this process in bytes, without mapped files: all ranks of a host share the
/// code of the program and its libraries.
struct ResidentMemory {
    std::uint64_t now = 0;
    std::uint64_t peak = 0;
};
ResidentMemory resident_memory();

}  // namespace loratrain
