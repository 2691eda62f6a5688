#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace loratrain {

/// Numbers that must not mix: each is its own type, `index()` turns one into an array index.
enum class AdapterId : std::int32_t {};     ///< position in Job::adapters
enum class DatasetId : std::int32_t {};     ///< position in Job::datasets
enum class MicrobatchId : std::int32_t {};  ///< position in Window::microbatches

template <class Id>
constexpr std::size_t index(Id id) {
    return static_cast<std::size_t>(id);
}
template <class Id>
constexpr std::int32_t number(Id id) {
    return static_cast<std::int32_t>(id);
}

/// The adapters numbered [begin, end); as it stands all that there are and will be.
struct AdapterSpan {
    std::int32_t begin = 0;
    std::int32_t end = std::numeric_limits<std::int32_t>::max();

    constexpr bool contains(AdapterId id) const { return begin <= number(id) && number(id) < end; }
    constexpr bool is_all() const { return *this == AdapterSpan{}; }
    friend constexpr bool operator==(const AdapterSpan&, const AdapterSpan&) = default;
};

}  // namespace loratrain
