#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace loratrain {

/// When each of several stages ends what it is at, and which is the first to: a tournament tree.
/// Either takes O(log stages), without branches.
class EndTimes {
  public:
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    explicit EndTimes(std::size_t stages)
        : leaves_(std::bit_ceil(stages)), earliest_(2 * leaves_, never) {}

    void set(std::size_t stage, std::int64_t time) {
        std::size_t i = leaves_ + stage;
        earliest_[i] = time;
        for (i /= 2; i > 0; i /= 2) earliest_[i] = std::min(earliest_[2 * i], earliest_[2 * i + 1]);
    }

    std::int64_t first() const { return earliest_[1]; }  ///< never, where no stage is busy
    std::size_t first_stage() const {
        std::size_t i = 1;
        while (i < leaves_) i = 2 * i + (earliest_[2 * i] == earliest_[1] ? 0 : 1);
        return i - leaves_;
    }

  private:
    std::size_t leaves_;                  ///< a power of two
    std::vector<std::int64_t> earliest_;  ///< node 1 is the root, those of i are 2 i and 2 i + 1
};

}  // namespace loratrain
