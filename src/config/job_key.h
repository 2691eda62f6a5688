#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace loratrain {

/// Numbers that a key accepts. Whole numbers without a `high` end at the largest int: what is
/// multiplied by them is counted in 64 bits.
struct Range {
    double low = 0.0;
    double high = std::numeric_limits<double>::infinity();
    bool low_excluded = false;
    bool high_excluded = false;

    bool contain(double value) const;
    std::string words() const;  ///< "at least 0 and less than 1"
};
constexpr Range at_least(double low) {
    return {low};
}
constexpr Range above(double low) {
    return {low, std::numeric_limits<double>::infinity(), true, false};
}
constexpr Range from_to(double low, double high) {
    return {low, high};
}
constexpr Range from_to_below(double low, double high) {
    return {low, high, false, true};
}
inline constexpr Range any_number = at_least(-std::numeric_limits<double>::infinity());

/// Whether a run may go on with another value of a key.
enum class Resume : std::uint8_t {
    refused,
    allowed,
    longer,        ///< with a larger one, where adapters that have ended can go on
    same_backend,  ///< where one of both is auto and comes to the other
};

/// What a key is, beside its name, its field and its meaning (adapter_keys.h, job_sections.h).
struct KeyInfo {
    Range range{};
    /// How --keys writes the default; nullptr = the value of a job that does not say it.
    const char* usual = nullptr;
    const char* required = nullptr;  ///< what to do where it is missing; nullptr = it may be
    bool written = true;             ///< to the resolved job, where it has a value
    bool null_is_none = false;       ///< a null is as no key; of a section: of its keys
    bool in_line = false;            ///< written as {a: 1}
    bool whole = false;              ///< of a field that holds fractions too
    Resume resume = Resume::refused;
    bool shared = true;              ///< of adapters: `defaults` may have it, and a sweep vary it
    const char* in_names = nullptr;  ///< what stands for it in names of trials; nullptr = "key-"
    /// The losses or schedules that have the key, in words for messages; nullptr = all.
    const char* of = nullptr;
    /// The job's loss or schedule is among them, or the value has no effect. Else the key is not
    /// written to the resolved job.
    bool used = true;
    /// Of values with keys of their own: the heading that these have (JobKey::section).
    const char* inside = nullptr;
};

class SectionReader;
class KeyWriter;

/// How a structured value is read over `T` and written; nullptr: with another key, or not at all.
/// `Item`: what has keys of its own in it.
template <class T, class Item = void>
struct OwnKey {
    void (*read)(SectionReader& section, T& object) = nullptr;
    void (*write)(KeyWriter& out, const T& object) = nullptr;
};

/// A word, or {key: N}, which is `numbered` with a number.
template <class E, class Int>
struct WordOrNumber {
    E& word;
    E numbered;
    Int& number;  ///< an int, or an optional one: the word `numbered` goes without, too
    const char* key;
    const char* help;
    const char* hint;  ///< where the number is missing

    bool has_number() const {
        if (word != numbered) return false;
        if constexpr (requires { number.has_value(); }) return number.has_value();
        return true;
    }
    int given() const {
        if constexpr (requires { number.value_or(0); })
            return number.value_or(0);
        else
            return number;
    }
};

template <class E, class Int>
WordOrNumber(E&, E, Int&, const char*, const char*, const char*) -> WordOrNumber<E, Int>;

}  // namespace loratrain
