#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/arithmetic.h"

namespace loratrain {

/// Places of an operator's tables in one piece of memory; equal tables share a place. If the tables
/// of an operator might not fit behind the others, all others are forgotten and places begin at the
/// start. So the tables of one operator never overlap; tables of different operators may.
class TablePlaces {
  public:
    static constexpr std::size_t alignment = 16;
    /// Bytes that a table of `bytes` bytes takes up.
    static constexpr std::size_t size_of(std::size_t bytes) { return round_up(bytes, alignment); }

    struct Place {
        std::size_t offset = 0;  ///< a multiple of `alignment`
        bool is_new = false;     ///< the caller must write the table there
    };

    explicit TablePlaces(std::size_t capacity) : capacity_(capacity) {}

    /// Begins an operator. `size`: sum of size_of() over its tables, at most `capacity`.
    void start_op(std::size_t size);
    /// The place of a table of the operator that was begun last.
    Place find(std::string_view table);

  private:
    struct TextHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };

    std::size_t capacity_;
    std::size_t used_ = 0;
    std::unordered_map<std::string, std::size_t, TextHash, std::equal_to<>> offsets_;
};

}  // namespace loratrain
