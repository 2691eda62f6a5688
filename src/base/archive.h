#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// One description of a struct's fields from which all its forms are written and read: texts for
/// files, YAML or JSON (config/text_archive.h), and bytes between ranks (base/wire.h).
///
///     template <class Archive>
///     void fields(Archive& archive, StagePlan& stage) {
///         archive("rank", stage.rank);
///         archive("layer_count", at_least(1, stage.layer_count));
///         archive("recompute", worded(stage.recompute, recompute_words));
///         archive.unless("kept_layers", stage.kept_layers, 0);
///     }
///
/// The function stands in namespace loratrain: in a .cpp beside its only client, or in a header for
/// several. A value is a number, a bool, a std::string, an id (AdapterId), a struct with fields(),
/// or a std::vector, std::array, std::optional or std::map<std::string, ...> of values. A vector of
/// pairs <std::string, value> is a map in texts, in the vector's order. Wrappers restrict a value:
///
///     worded(value, words)    an enum, written as one of its words (config/job_words.h)
///     below(count, value)     a number, or an enum without words: 0 to count - 1
///     at_least(least, value)  a finite number of at least `least`, or a list of such numbers
///
/// An archive has
///
///     archive("key", value);           a key that texts must have, unless it is a std::optional
///     archive.unless("key", value, u); texts leave the key out if the value is u; reading gives u
///     archive.list(a, b);              instead of keys, also of what is only sent: texts have
///                                      the struct as [a, b]
///     archive.kind("key", v, names);   a variant: texts have a map that begins with `kind: NAME`
///     archive.note("key", value);      for people: readers of texts ignore it
///     archive.format("name-1");        first in texts; readers refuse others (check_format())
///     Archive::reads                   true for readers, for `if constexpr`
///
/// where u may be `no_entries`, an empty list or text. Readers refuse what is missing, out of range
/// or unknown, and never allocate more than the size of their input. Bytes have every field in
/// order, without keys, since both sides are the same program.
namespace loratrain {

template <class E, class Words>
struct Worded {
    E& value;
    const Words& words;  ///< a list of structs {text, value}
    friend bool operator==(const Worded& one, const E& other) { return one.value == other; }
};
template <class E, class Words>
Worded<E, Words> worded(E& value, const Words& words) {
    return {value, words};
}

template <class T>
struct Below {
    std::size_t count;
    T& value;
};
template <class T>
Below<T> below(std::size_t count, T& value) {
    return {count, value};
}

template <class Bound, class T>
struct AtLeast {
    Bound least;
    T& value;
    friend bool operator==(const AtLeast& one, const T& other) { return one.value == other; }
};
template <class Bound, class T>
AtLeast<Bound, T> at_least(Bound least, T& value) {
    return {least, value};
}

struct NoEntries {
    template <class List>
    friend bool operator==(const List& list, NoEntries) {
        return list.empty();
    }
};
inline constexpr NoEntries no_entries{};

/// Properties of types that archives ask for.
namespace archived {

template <class T, template <class...> class Of>
inline constexpr bool is = false;
template <template <class...> class Of, class... Args>
inline constexpr bool is<Of<Args...>, Of> = true;

template <class T>
inline constexpr bool is_array = false;
template <class T, std::size_t size>
inline constexpr bool is_array<std::array<T, size>> = true;

/// True for a vector of pairs with a name, and for a map: texts have both as a map.
template <class T>
inline constexpr bool is_named = false;
template <class T>
inline constexpr bool is_named<std::vector<std::pair<std::string, T>>> = true;
template <class T>
inline constexpr bool is_named<std::map<std::string, T>> = true;

template <class T>
inline constexpr bool is_number = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// True for AdapterId and other ids; smaller enums need worded() or below().
template <class T>
inline constexpr bool is_id = std::is_enum_v<T> && sizeof(T) == sizeof(std::int32_t);

template <class Number>
constexpr bool fits(const Number& value, const auto& least) {
    return value >= static_cast<Number>(least) && value <= std::numeric_limits<Number>::max();
}
template <class T>
bool fits(const std::vector<T>& values, const auto& least) {
    for (const T& value : values) {
        if (!fits(value, least)) return false;
    }
    return true;
}

/// The value as fields() takes it: not const, for readers. Writers change nothing.
template <class T>
T& fields_of(const T& value) {
    return const_cast<T&>(value);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

}  // namespace archived

}  // namespace loratrain
