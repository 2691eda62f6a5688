#include "plan/pack/pack_batch.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace loratrain {

namespace {

constexpr std::size_t word_bits = 64;

/// Sums 0 .. most that subsets have, in units: one bit each, in a row for the first 0, 1, ..
/// values.
class Reach {
  public:
    Reach(std::span<const std::int64_t> values, std::int64_t unit, std::size_t most,
          std::int64_t target, SubsetRoom& room)
        : values_(values),
          unit_(unit),
          most_(most),
          target_(target),
          words_(most / word_bits + 1),
          reached_(room) {
        if (reached_.size() < (values.size() + 1) * words_) {
            reached_.resize((values.size() + 1) * words_);
        }
        std::fill_n(reached_.begin(), words_, 0);
        reached_[0] = 1;
        const auto [below, above] = beside_target();
        const std::size_t wished = distance(above) < distance(below) ? above : below;
        while (used_ < values.size() && !has(used_, wished)) add_next();
    }

    /// The sum nearest to the target, the least of equally near ones, as positions.
    std::vector<std::int32_t> nearest() const {
        auto [below, above] = beside_target();
        while (!has(used_, below)) --below;
        while (above <= most_ && !has(used_, above)) ++above;
        std::size_t left = above <= most_ && distance(above) < distance(below) ? above : below;
        std::vector<std::int32_t> chosen;
        chosen.reserve(used_);
        for (std::size_t i = used_; left > 0; --i) {
            if (has(i - 1, left)) continue;
            chosen.push_back(static_cast<std::int32_t>(i - 1));
            left -= in_units(i - 1);
        }
        std::reverse(chosen.begin(), chosen.end());
        return chosen;
    }

  private:
    /// Sums of the first used_ values, and of those and one more.
    void add_next() {
        const std::uint64_t* before = &reached_[used_ * words_];
        std::uint64_t* after = &reached_[(used_ + 1) * words_];
        std::copy_n(before, words_, after);
        const std::size_t skipped = in_units(used_) / word_bits;
        const std::size_t shift = in_units(used_) % word_bits;
        ++used_;
        if (skipped >= words_) return;
        after[skipped] |= before[0] << shift;
        for (std::size_t w = skipped + 1; w < words_; ++w) {
            const std::uint64_t carry =
                shift == 0 ? 0 : before[w - skipped - 1] >> (word_bits - shift);
            after[w] |= before[w - skipped] << shift | carry;
        }
    }

    std::size_t in_units(std::size_t i) const {
        return static_cast<std::size_t>((values_[i] + unit_ - 1) / unit_);
    }
    bool has(std::size_t used, std::size_t sum) const {
        return (reached_[used * words_ + sum / word_bits] >> (sum % word_bits) & 1U) != 0;
    }
    std::int64_t distance(std::size_t sum) const {
        return std::abs(static_cast<std::int64_t>(sum) * unit_ - target_);
    }

    /// The sums nearest to the target, if all were reached.
    std::pair<std::size_t, std::size_t> beside_target() const {
        const auto last = static_cast<std::int64_t>(most_);
        const auto below =
            static_cast<std::size_t>(std::clamp<std::int64_t>(target_ / unit_, 0, last));
        return {below, std::min(below + 1, most_)};
    }

    std::span<const std::int64_t> values_;
    std::int64_t unit_;
    std::size_t most_;
    std::int64_t target_;
    std::size_t words_;     ///< of a row
    SubsetRoom& reached_;   ///< of rows up to used_
    std::size_t used_ = 0;  ///< values
};

}  // namespace

std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution,
                                         SubsetRoom& room) {
    if (most <= 0) return {};
    const std::int64_t unit = (most + resolution - 1) / resolution;
    return Reach(values, unit, static_cast<std::size_t>(most / unit), target, room).nearest();
}

}  // namespace loratrain
