#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"

namespace loratrain {

/// Ranges of rows or columns.

/// Rows or columns [first, first + count).
struct Slice {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t end() const { return first + count; }
    friend bool operator==(const Slice&, const Slice&) = default;
};

/// A few ranges, ascending and apart: what a lane has of rows that several parts lie in, as those
/// of q, k and v of one linear. It has them one behind another. Value type.
class Slices {
  public:
    Slices() = default;
    Slices(const Slice& one) { add(one); }  // NOLINT(google-explicit-constructor)

    /// A range behind the others; one that begins where the last ends makes that longer, so that
    /// equal rows are equal ranges.
    void add(const Slice& next) {
        if (next.count == 0) return;
        if (number_ > 0 && ranges_[number_ - 1].end() == next.first) {
            ranges_[number_ - 1].count += next.count;
            return;
        }
        LORATRAIN_CHECK(
            number_ < ranges_.size() && (number_ == 0 || ranges_[number_ - 1].end() < next.first),
            "ranges of a slice");
        ranges_[number_++] = next;
    }

    std::span<const Slice> ranges() const { return {ranges_.data(), number_}; }
    std::int64_t count() const {
        std::int64_t sum = 0;
        for (const Slice& range : ranges()) sum += range.count;
        return sum;
    }
    /// The range, where there is never more than one.
    Slice only() const {
        LORATRAIN_CHECK(number_ <= 1, number_, " ranges instead of one");
        return number_ == 0 ? Slice{} : ranges_[0];
    }
    /// Calls use(first, place, count) for pieces of at most `at_once`: [first, first + count) is
    /// what the lane has from its own `place` on.
    template <class Use>
    void for_each_piece(std::int64_t at_once, const Use& use) const {
        std::int64_t place = 0;
        for (const Slice& range : ranges()) {
            for (std::int64_t at = 0; at < range.count; at += at_once) {
                const std::int64_t count = std::min(at_once, range.count - at);
                use(range.first + at, place, count);
                place += count;
            }
        }
    }

    friend bool operator==(const Slices&, const Slices&) = default;

  private:
    std::array<Slice, 3> ranges_{};
    std::size_t number_ = 0;
};

}  // namespace loratrain
