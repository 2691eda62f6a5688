#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace loratrain {

/// When each of several stages ends what it is at, and which are the next to: scans of a few stages
/// at a time, with the least time of each such block beside; a tree waits at every level.
class EndTimes {
  public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    explicit EndTimes(std::size_t stages)
        : least_((std::max<std::size_t>(stages, 1) + in_block - 1) / in_block, never),
          times_(least_.size() * in_block, never) {}

    void set(std::size_t stage, std::int64_t time) {
        std::int64_t& least = least_[stage / in_block];
        const std::int64_t before = std::exchange(times_[stage], time);
        if (time <= least) {
            least = time;
        } else if (before == least) {
            least = least_of(stage / in_block);
        }
    }

    /// never, where no stage is busy.
    std::int64_t first() const { return *std::min_element(least_.begin(), least_.end()); }

    /// Calls `end(stage)` for the stages that end at `time`, which is first(), in their order; it
    /// may set theirs.
    template <typename End>
    void each_at(std::int64_t time, End&& end) {
        for (std::size_t block = 0; block < least_.size(); ++block) {
            if (least_[block] != time) continue;
            std::uint32_t equal = 0;
            for (std::size_t j = 0; j < in_block; ++j) {
                equal |= static_cast<std::uint32_t>(times_[block * in_block + j] == time) << j;
            }
            for (; equal != 0; equal &= equal - 1) {
                end(block * in_block + static_cast<std::size_t>(std::countr_zero(equal)));
            }
        }
    }

  private:
    static constexpr std::size_t in_block = 8;

    std::int64_t least_of(std::size_t block) const {
        const auto first = times_.begin() + static_cast<std::ptrdiff_t>(block * in_block);
        return *std::min_element(first, first + static_cast<std::ptrdiff_t>(in_block));
    }

    std::vector<std::int64_t> least_;  ///< per block
    std::vector<std::int64_t> times_;  ///< in_block for each
};

}  // namespace loratrain
