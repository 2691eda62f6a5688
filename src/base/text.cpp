#include "base/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

namespace loratrain {

namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::swap(before_last, last);
        std::swap(last, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
        }
    }
    return row[b.size()];
}

std::size_t allowed_distance(std::size_t letters) {
    if (letters < 2) return 0;
    if (letters < 4) return 1;
    return std::max<std::size_t>(2, letters / 3);
}

}  // namespace

std::string join(const std::vector<std::string>& words, std::string_view separator) {
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (i > 0) text += separator;
        text += words[i];
    }
    return text;
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
    std::string best;
    std::size_t best_distance = allowed_distance(word.size()) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t longest = std::max(word.size(), candidate.size());
        if (longest - std::min(word.size(), candidate.size()) >= best_distance) continue;
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

std::string format_fixed(double value, int decimals) {
    std::array<char, 512> buffer{};
    const int length = std::snprintf(buffer.data(), buffer.size(), "%.*f", decimals, value);
    return {buffer.data(), std::min(buffer.size() - 1, static_cast<std::size_t>(length))};
}

std::string format_exact(double value) {
    std::array<char, 64> buffer{};
    const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
    return {buffer.data(), result.ptr};
}

std::string human_bytes(std::uint64_t bytes) {
    static constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    // 1023.96 would be printed as 1024.0.
    while (value >= (unit == 0 ? 1024.0 : 1023.95) && unit + 1 < units.size()) {
        value /= 1024.0;
        ++unit;
    }
    return unit == 0 ? cat(bytes, " B") : format_fixed(value, 1) + " " + units[unit];
}

constexpr double longest_duration = 1e12;  ///< in seconds; fits in all integers

std::string human_duration(double seconds) {
    if (!std::isfinite(seconds) || seconds > longest_duration) return "unknown";
    const auto total = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
    if (total < 60) return cat(total, " s");
    if (total < 3600) return cat(total / 60, " min ", total % 60, " s");
    return cat(total / 3600, " h ", total % 3600 / 60, " min");
}

}  // namespace loratrain
