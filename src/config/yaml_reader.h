#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "config/job_words.h"
#include "config/yaml_tree.h"

namespace loratrain {

/// Values that a floating-point key accepts.
struct Limits {
    double low = 0.0;
    double high = std::numeric_limits<double>::infinity();
    bool low_excluded = false;
    bool high_excluded = false;

    bool contain(double value) const;
    std::string words() const;  ///< "at least 0 and less than 1"
};
constexpr Limits at_least(double low) {
    return {low};
}
constexpr Limits above(double low) {
    return {low, std::numeric_limits<double>::infinity(), true, false};
}
constexpr Limits from_to_below(double low, double high) {
    return {low, high, false, true};
}

/// Values that a whole-number key accepts. What is multiplied by it or takes memory for each has a
/// `most` that these come through; the program counts in 64 bits.
struct WholeLimits {
    // A number where limits are asked for is the least.
    // NOLINTNEXTLINE(google-explicit-constructor)
    constexpr WholeLimits(std::int64_t low, std::int64_t high = std::numeric_limits<int>::max())
        : least(low), most(high) {}

    std::int64_t least;
    std::int64_t most;
};
inline constexpr std::int64_t most_steps_of_job = 1'000'000'000;
/// Of a rank: six digits, as in rank_pattern.
inline constexpr std::int64_t most_rank = 999'999;

/// Reads one mapping key by key into typed fields. A key that is absent leaves its field as it is;
/// a wrong one is logged and leaves it too. Every key asked for, one of job_keys.h, counts as
/// known; finish() logs all others, but for those that ask for what is done anyway
/// (foreign_keys.h). A section that is absent or empty reads like an empty mapping. Numbers may
/// stand in quotes.
class SectionReader {
  public:
    /// `path` prefixes keys in messages ("defaults", "adapters.math-r8", "" for the top level).
    /// A null `node` stands for an absent section, then problems are placed at `parent`.
    SectionReader(const YamlNode* node, const Place& parent, std::string path, ProblemLog& log);

    /// The value of `key`, or nullptr.
    const YamlNode* find(const std::string& key);
    bool has(const std::string& key) { return find(key) != nullptr; }
    SectionReader section(const std::string& key);

    void read(const std::string& key, std::string& value);
    void read(const std::string& key, bool& value);
    void read(const std::string& key, double& value, const Limits& limits);
    void read(const std::string& key, int& value, WholeLimits limits);
    void read(const std::string& key, std::int64_t& value, WholeLimits limits);
    void read(const std::string& key, std::uint64_t& value);
    /// A number of samples, or a fraction of them.
    void read(const std::string& key, EvalSplit& value);
    /// "auto" gives an empty value.
    void read_auto(const std::string& key, std::optional<int>& value, WholeLimits limits);
    /// Relative paths are resolved against `folder`, wherever they were written; "" stays "", and
    /// ~/ at the start is the user's home.
    void read_path(const std::string& key, std::string& value, const std::string& folder);
    template <class E, std::size_t N>
    void read_word(const std::string& key, E& value, const std::array<Word<E>, N>& words) {
        if (const auto found = read_choice(key, word_texts(words))) value = words[*found].value;
    }

    /// Logs a problem when `key` is absent or an empty text.
    void require(const std::string& key, const std::string& hint);
    void problem(const Place& place, const std::string& key, const std::string& what,
                 const std::string& hint);
    /// Logs the keys that nobody asked for. Call last.
    void finish();

    const Place& place() const { return place_; }
    const std::string& path() const { return path_; }

  private:
    const YamlNode* scalar(const std::string& key, const std::string& expected);
    template <class Int>
    std::optional<Int> whole_number(const std::string& key, Int least, Int most,
                                    const std::string& expected);
    std::optional<std::size_t> read_choice(const std::string& key,
                                           const std::vector<std::string>& words);
    std::string full_name(const std::string& key) const;
    void judge_unknown(const YamlNode& child);

    const YamlNode* node_;
    Place place_;
    std::string path_;
    std::string section_;  ///< of job_keys.h
    ProblemLog& log_;
    bool usable_ = true;
    std::vector<std::string> known_;
};

/// The number that the whole text is; none where it is none.
std::optional<double> number_in(const std::string& text);

/// The folder of a file, absolute: what the paths in it are relative to.
std::string folder_of(const std::string& path);

}  // namespace loratrain
