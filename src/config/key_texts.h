#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>

#include "config/job_key.h"
#include "config/job_words.h"

namespace loratrain {

/// The keys of a section and their values as texts.

/// The value as the job file writes it; none if it is not given.
inline std::string value_text(const std::string& value) {
    return value;
}
/// The value with a point in front of the exponent, so that YAML 1.1 readers also see a number.
std::string value_text(double value);
std::optional<std::string> value_text(const std::optional<double>& value);
std::optional<std::string> value_text(const EvalSplit& value);
template <std::integral Int>
std::string value_text(Int value) {
    if constexpr (std::same_as<Int, bool>) return value ? "true" : "false";
    return std::to_string(value);
}
/// auto if there is no value.
template <std::integral Int>
std::string value_text(const std::optional<Int>& value) {
    return value ? value_text(*value) : auto_word;
}
std::string written_path(const std::string& path);  ///< absolute; "" stays

/// A key as KeyTexts shows it to a visitor.
struct SeenKey {
    const char* name;
    const char* help;
    const KeyInfo& info;
    std::optional<std::string> text;  ///< as in the job file; none = not given, or not one text
    bool whole = false;               ///< values are whole numbers
};

/// Visitor that sees the value of every key as a text. A visitor for structured values hides `own`
/// and `section`.
class KeyTexts {
  public:
    virtual ~KeyTexts() = default;

    template <class T>
    void key(const char* name, const T& value, const char* help, const KeyInfo& info = {}) {
        constexpr bool whole = (std::integral<T> && !std::same_as<T, bool>) ||
                               std::same_as<T, std::optional<int>> ||
                               std::same_as<T, std::optional<std::int64_t>>;
        see({name, help, info, value_text(value), whole || info.whole});
    }
    template <class E, std::size_t N>
    void key(const char* name, const E& value, const std::array<Word<E>, N>& words,
             const char* help, const KeyInfo& info = {}) {
        see({name, help, info, word_of(words, value)});
    }
    void path(const char* name, const std::string& value, const char* help,
              const KeyInfo& info = {}) {
        see({name, help, info, written_path(value)});
    }
    template <class T, class Item>
    void own(const char* name, const T& /*object*/, const OwnKey<T, Item>& /*ways*/,
             const char* help, const KeyInfo& info = {}) {
        mention(name, help, info);
    }
    template <class T>
    void section(const char* name, const T& /*object*/, const char* help,
                 const KeyInfo& info = {}) {
        mention(name, help, info);
    }
    /// A key that another function reads.
    void mention(const char* name, const char* help, const KeyInfo& info = {}) {
        see({name, help, info, std::nullopt, info.whole});
    }

  private:
    virtual void see(const SeenKey& key) = 0;
};

}  // namespace loratrain
