#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace loratrain {

/// The arguments written one after another with operator<<.
template <class... Args>
std::string cat(const Args&... args) {
    std::ostringstream out;
    ((out << args), ...);
    return out.str();
}

std::string join(const std::vector<std::string>& words, std::string_view separator);

/// The candidate with the smallest edit distance to `word` (two neighbours swapped count once), or
/// "" when none is near: at most a third of the letters may differ, two in words of 4 to 8 letters,
/// one in shorter words.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "512 B", "3.4 MiB", "55.0 GiB".
std::string human_bytes(std::uint64_t bytes);

/// "42 s", "3 min 20 s", "5 h 12 min"; "unknown" when not finite.
std::string human_duration(double seconds);

/// Fixed-point text: format_fixed(3.14159, 2) == "3.14".
std::string format_fixed(double value, int decimals);

/// Shortest text that reads back as the same double.
std::string format_exact(double value);

}  // namespace loratrain
