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

/// Per sum 0 .. most: the first value that completes it from a sum of earlier values.
std::vector<std::int32_t> reach(std::span<const std::int64_t> values, std::int64_t unit,
                                std::size_t most) {
    std::vector<std::int32_t> completed_by(most + 1, unreached);
    SumSet sums(most);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const auto value = static_cast<std::size_t>((values[i] + unit - 1) / unit);
        if (value > most) continue;
        sums.add(value, [&](std::size_t sum) { completed_by[sum] = static_cast<std::int32_t>(i); });
    }
    return completed_by;
}

}  // namespace

std::vector<std::int32_t> nearest_subset(std::span<const std::int64_t> values, std::int64_t target,
                                         std::int64_t most, std::int64_t resolution) {
    if (most <= 0) return {};
    const std::int64_t unit = (most + resolution - 1) / resolution;
    const std::vector<std::int32_t> completed_by =
        reach(values, unit, static_cast<std::size_t>(most / unit));
    std::int64_t best = 0;
    for (std::size_t sum = 1; sum < completed_by.size(); ++sum) {
        const auto total = static_cast<std::int64_t>(sum) * unit;
        if (completed_by[sum] == unreached) continue;
        if (std::abs(total - target) < std::abs(best * unit - target)) {
            best = static_cast<std::int64_t>(sum);
        }
    }
    std::vector<std::int32_t> chosen;
    while (best > 0) {
        const std::int32_t value = completed_by[static_cast<std::size_t>(best)];
        chosen.push_back(value);
        best -= (values[static_cast<std::size_t>(value)] + unit - 1) / unit;
    }
    std::reverse(chosen.begin(), chosen.end());
    return chosen;
}

}  // namespace loratrain
