#include "plan/pack/subset_sum.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace loratrain {

namespace {

constexpr std::int32_t unreached = -1;

constexpr std::size_t word_bits = 64;

/// Sums that can be reached, one bit each.
class SumSet {
  public:
    explicit SumSet(std::size_t most) : most_(most), words_(most / word_bits + 1), fresh_(words_) {
        words_[0] = 1;
    }

    /// Adds every sum plus `value`; `use` gets those that are new.
    template <class Use>
    void add(std::size_t value, Use&& use) {
        const std::size_t skipped = value / word_bits;
        const std::size_t shift = value % word_bits;
        for (std::size_t w = skipped; w < words_.size(); ++w) {
            const std::uint64_t low = words_[w - skipped] << shift;
            const std::uint64_t carry =
                shift == 0 || w == skipped ? 0 : words_[w - skipped - 1] >> (word_bits - shift);
            fresh_[w] = (low | carry) & ~words_[w];
        }
        for (std::size_t w = skipped; w < words_.size(); ++w) {
            words_[w] |= fresh_[w];
            for (std::uint64_t bits = fresh_[w]; bits != 0; bits &= bits - 1) {
                const std::size_t sum =
                    w * word_bits + static_cast<std::size_t>(std::countr_zero(bits));
                if (sum <= most_) use(sum);
            }
        }
    }

  private:
    std::size_t most_;
    std::vector<std::uint64_t> words_;
    std::vector<std::uint64_t> fresh_;
};

/// Sums 0 .. most that subsets have, in units.
class Reach {
  public:
    Reach(std::span<const std::int64_t> values, std::int64_t unit, std::size_t most,
          std::int64_t target)
        : values_(values), unit_(unit), target_(target), completed_by_(most + 1, unreached) {
        SumSet sums(most);
        const std::size_t wished = nearest_of_all();
        for (std::size_t i = 0; i < values.size() && !has(wished); ++i) {
            const std::size_t value = in_units(i);
            if (value > most) continue;
            sums.add(value,
                     [&](std::size_t sum) { completed_by_[sum] = static_cast<std::int32_t>(i); });
        }
    }

    /// The sum nearest to the target, the least of equally near ones, as positions.
    std::vector<std::int32_t> nearest() const {
        std::size_t best = 0;
        for (std::size_t sum = 1; sum < completed_by_.size(); ++sum) {
            if (has(sum) && distance(sum) < distance(best)) best = sum;
        }
        std::vector<std::int32_t> chosen;
        while (best > 0) {
            chosen.push_back(completed_by_[best]);
            best -= in_units(static_cast<std::size_t>(chosen.back()));
        }
        std::reverse(chosen.begin(), chosen.end());
        return chosen;
    }

  private:
    std::size_t in_units(std::size_t i) const {
        return static_cast<std::size_t>((values_[i] + unit_ - 1) / unit_);
    }
    bool has(std::size_t sum) const { return sum == 0 || completed_by_[sum] != unreached; }
    std::int64_t distance(std::size_t sum) const {
        return std::abs(static_cast<std::int64_t>(sum) * unit_ - target_);
    }

    /// What nearest() would find if every sum were reached.
    std::size_t nearest_of_all() const {
        const auto last = static_cast<std::int64_t>(completed_by_.size()) - 1;
        const auto below =
            static_cast<std::size_t>(std::clamp<std::int64_t>(target_ / unit_, 0, last));
        const std::size_t above = std::min(below + 1, completed_by_.size() - 1);
        return distance(above) < distance(below) ? above : below;
    }

    std::span<const std::int64_t> values_;
    std::int64_t unit_;
    std::int64_t target_;
    std::vector<std::int32_t> completed_by_;  ///< per sum: the first value that completes it
};

}  // namespace

std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution) {
    if (most <= 0) return {};
    const std::int64_t unit = (most + resolution - 1) / resolution;
    return Reach(values, unit, static_cast<std::size_t>(most / unit), target).nearest();
}

}  // namespace loratrain
