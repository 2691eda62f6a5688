#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace loratrain {

/// When each of several stages ends what it is at, and which are the next to: plain scans, which
/// cost a few cycles for as many stages as pipelines have, where a tree waits at every level.
class EndTimes {
  public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    explicit EndTimes(std::size_t stages)
        : times_((std::max<std::size_t>(stages, 1) + in_block - 1) / in_block * in_block, never) {}

    void set(std::size_t stage, std::int64_t time) { times_[stage] = time; }

    /// never, where no stage is busy.
    std::int64_t first() const {
        std::int64_t least[in_block];
        std::copy_n(times_.begin(), in_block, least);
        for (std::size_t i = in_block; i < times_.size(); i += in_block) {
            for (std::size_t j = 0; j < in_block; ++j) {
                least[j] = std::min(least[j], times_[i + j]);
            }
        }
        return *std::min_element(least, least + in_block);
    }

    /// Calls `end(stage)` for the stages that end at `time`, in their order; it may set theirs.
    template <typename End>
    void each_at(std::int64_t time, End&& end) {
        for (std::size_t i = 0; i < times_.size(); i += in_block) {
            std::uint32_t equal = 0;
            for (std::size_t j = 0; j < in_block; ++j) {
                equal |= static_cast<std::uint32_t>(times_[i + j] == time) << j;
            }
            for (; equal != 0; equal &= equal - 1) {
                end(i + static_cast<std::size_t>(std::countr_zero(equal)));
            }
        }
    }

  private:
    static constexpr std::size_t in_block = 8;

    std::vector<std::int64_t> times_;  ///< a multiple of in_block
};

}  // namespace loratrain
