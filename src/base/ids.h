#pragma once

#include <cstddef>
#include <cstdint>

namespace loratrain {

/// Numbers that must not mix: each is its own type, `index()` turns one into an array index.
enum class AdapterId : std::int32_t {};     ///< position in Job::adapters
enum class DatasetId : std::int32_t {};     ///< position in Job::datasets
enum class MicrobatchId : std::int32_t {};  ///< position in Window::microbatches
enum class StageId : std::int32_t {};       ///< position in ReplicaPlan::stages
enum class LayerId : std::int32_t {};       ///< decoder layer of the base model

template <class Id>
constexpr std::size_t index(Id id) {
    return static_cast<std::size_t>(id);
}
template <class Id>
constexpr std::int32_t number(Id id) {
    return static_cast<std::int32_t>(id);
}

}  // namespace loratrain
