#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace loratrain {

/// What is known of a key of the job file beside its name: range, default, use at a resume.

/// The numbers that a key accepts. Without `high` whole numbers end at the largest int, so that
/// products of them fit in 64 bits.
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

/// Whether a run may be resumed with another value of a key.
enum class Resume : std::uint8_t {
    refused,
    allowed,
    longer,        ///< with a larger value, if adapters that have ended can continue
    same_backend,  ///< if one of the two values is auto and means the other
};

/// Properties of a key other than name, field and meaning (adapter_keys.h, job_sections.h).
struct KeyInfo {
    Range range{};
    /// The default as --keys prints it; nullptr = the field's initial value.
    const char* usual = nullptr;
    const char* required = nullptr;  ///< hint of the message if it is missing; nullptr = optional
    bool written = true;             ///< the resolved job has it, if it has a value
    bool null_is_none = false;       ///< a null counts as absent; for a section: of its keys
    bool in_line = false;            ///< the resolved job has it as {a: 1}
    bool whole = false;              ///< only whole numbers, though the field holds fractions
    Resume resume = Resume::refused;
    bool shared = true;              ///< of adapters: `defaults` may have it, a sweep may vary it
    const char* in_names = nullptr;  ///< its abbreviation in names of trials; nullptr = "key-"
    /// The losses or schedules that have the key, as messages name them; nullptr = all.
    const char* of = nullptr;
    /// The job's loss or schedule has the key, or the value has no effect. If false the resolved
    /// job does not have it.
    bool used = true;
    /// For a value with keys of its own: their heading (JobKey::section).
    const char* inside = nullptr;
};

class SectionReader;
class KeyWriter;

/// How a structured value is read into a `T` and written; nullptr = another key handles it, or
/// nothing does. `Item`: the part of the value that has keys of its own.
template <class T, class Item = void>
struct OwnKey {
    void (*read)(SectionReader& section, T& object) = nullptr;
    void (*write)(KeyWriter& out, const T& object) = nullptr;
};

/// A word, or {key: N}, which stands for the word `numbered` with a number.
template <class E, class Int>
struct WordOrNumber {
    E& word;
    E numbered;
    Int& number;  ///< an int; if optional, the word `numbered` may stand alone
    const char* key;
    const char* help;
    const char* hint;  ///< of the message if the number is missing

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
