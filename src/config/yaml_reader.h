#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "config/given_paths.h"
#include "config/job_key.h"
#include "config/job_words.h"
#include "config/yaml_tree.h"

namespace loratrain {

inline constexpr std::int64_t most_steps_of_job = 1'000'000'000;
/// Reads one mapping of a YAML text, and logs each key that cannot be used.

/// Largest rank: six digits, as in rank_pattern.
inline constexpr std::int64_t most_rank = 999'999;

/// What a reader needs besides the text of the file.
struct ReadContext {
    ProblemLog& log;
    std::string folder{};                 ///< base of relative paths
    std::vector<std::string> datasets{};  ///< names, indexed by DatasetId
    std::unordered_map<std::string, DatasetId> ids{};
    GivenPaths* paths = nullptr;  ///< gets the paths that are read; null = nobody asks

    void set_datasets(const std::vector<DatasetJob>& all);
};

/// Reads one mapping key by key into typed fields. A key that is absent leaves its field as it is;
/// a wrong value is logged and leaves it too. Every key that is asked for counts as known. finish()
/// logs all other keys, except keys that ask for what is done in any case (foreign_keys.h). An
/// absent or empty section reads like an empty mapping. Numbers may be quoted.
class SectionReader {
  public:
    /// `path`: prefix of keys in messages ("defaults", "adapters.math-r8", "" for the top level).
    /// `node`: null stands for an absent section, whose problems are placed at `parent`. `heading`:
    /// JobKey::section of the keys, if it is not `path`. `context` must outlive the reader.
    SectionReader(const YamlNode* node, const Place& parent, std::string path,
                  const ReadContext& context, const char* heading = nullptr);

    /// The value of `key`, or nullptr.
    const YamlNode* find(const std::string& key);
    bool has(const std::string& key) { return find(key) != nullptr; }
    /// Of the value of `key`; of the section where that is missing.
    const Place& place_of(const std::string& key);
    SectionReader section(const std::string& key, const char* heading = nullptr);

    void read(const std::string& key, std::string& value, const Range& range = {});
    void read(const std::string& key, bool& value, const Range& range = {});
    void read(const std::string& key, double& value, const Range& range);
    void read(const std::string& key, int& value, const Range& range);
    void read(const std::string& key, std::int64_t& value, const Range& range);
    /// A whole number of any size.
    void read(const std::string& key, std::uint64_t& value, const Range& range = {});
    void read(const std::string& key, std::optional<double>& value, const Range& range);
    /// "auto" gives an empty value.
    void read(const std::string& key, std::optional<int>& value, const Range& range);
    void read(const std::string& key, std::optional<std::int64_t>& value, const Range& range);
    /// A number of samples, or a fraction of the samples.
    void read(const std::string& key, EvalSplit& value, const Range& range = {});
    /// Reads a path. Relative paths are resolved against the folder, wherever they were written. ""
    /// stays "". ~/ at the start is the user's home.
    void read_path(const std::string& key, std::string& value);
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
    const ReadContext& context() const { return context_; }

  private:
    const YamlNode* scalar(const std::string& key, const std::string& expected);
    template <class Int>
    std::optional<Int> whole_number(const std::string& key, Int least, Int most,
                                    const std::string& expected);
    std::optional<std::int64_t> whole_number(const std::string& key, const Range& range,
                                             const std::string& or_else);
    std::optional<std::size_t> read_choice(const std::string& key,
                                           const std::vector<std::string>& words);
    std::string full_name(const std::string& key) const;
    void judge_unknown(const YamlNode& child);

    const YamlNode* node_;
    Place place_;
    std::string path_;
    std::string heading_;
    const ReadContext& context_;
    bool usable_ = true;
    std::vector<std::string> known_;
};

/// The number that the whole text represents; none if it is not a number.
std::optional<double> number_in(const std::string& text);

/// The absolute folder of a file, to which the paths in the file are relative.
std::string folder_of(const std::string& path);

}  // namespace loratrain
