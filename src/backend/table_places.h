#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/arithmetic.h"

namespace loratrain {

/// Where tables lie in one piece of memory, equal ones only once. An op whose tables might not fit
/// behind the others makes all of those forgotten and begins at the start: the tables of one op
/// never overlap, those of different ops may.
class TablePlaces {
  public:
    static constexpr std::size_t alignment = 16;
    /// What a table of `bytes` bytes takes up.
    static constexpr std::size_t size_of(std::size_t bytes) { return round_up(bytes, alignment); }

    struct Place {
        std::size_t offset = 0;  ///< a multiple of `alignment`
        bool is_new = false;     ///< the table is to be written there
    };

    explicit TablePlaces(std::size_t capacity) : capacity_(capacity) {}

    /// `size`: what the op's tables take up together, at most `capacity`.
    void start_op(std::size_t size);
    /// Of a table of the op started last.
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
