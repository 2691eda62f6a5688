#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/rng.h"

namespace loratrain::fuzz {

/// Random choices, one after another; the same from the same key on every machine.
class Draw {
  public:
    explicit Draw(std::uint64_t key) : key_(key) {}

    std::size_t below(std::size_t bound) {
        return static_cast<std::size_t>(uniform_int(key_, next_++, bound));
    }
    bool one_in(std::size_t n) { return below(n) == 0; }
    template <class List>
    const auto& among(const List& list) {
        return *(std::begin(list) + static_cast<std::ptrdiff_t>(below(std::size(list))));
    }

  private:
    std::uint64_t key_;
    std::uint64_t next_ = 0;
};

}  // namespace loratrain::fuzz
