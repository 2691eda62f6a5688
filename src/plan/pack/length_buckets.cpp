#include "plan/pack/length_buckets.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::int64_t unreachable = std::numeric_limits<std::int64_t>::max() / 4;

/// Least padding of the first i lengths in j buckets; lengths are sorted.
class Buckets {
  public:
    explicit Buckets(std::vector<std::int32_t> sorted) : lengths_(std::move(sorted)), sum_{0} {
        for (const std::int32_t length : lengths_) sum_.push_back(sum_.back() + length);
        least_.assign(sum_.size(), unreachable);
        least_[0] = 0;
    }

    std::vector<std::int32_t> run(std::int32_t most) {
        const std::size_t n = lengths_.size();
        for (std::int32_t j = 0; j < most && least_[n] > 0; ++j) {
            next_.assign(n + 1, unreachable);
            next_[0] = 0;
            cut_.emplace_back(n + 1, 0);
            solve(1, n, 0, n - 1);
            least_.swap(next_);
        }
        std::vector<std::int32_t> bounds;
        std::size_t end = n;
        for (auto cut = cut_.rbegin(); cut != cut_.rend() && end > 0; ++cut) {
            bounds.push_back(lengths_[end - 1]);
            end = (*cut)[end];
        }
        std::reverse(bounds.begin(), bounds.end());
        bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
        return bounds;
    }

  private:
    std::int64_t padding(std::size_t from, std::size_t to) const {
        return static_cast<std::int64_t>(to - from) * lengths_[to - 1] - (sum_[to] - sum_[from]);
    }

    /// Best cuts of first .. last, all within low .. high: cuts do not fall as the end grows.
    void solve(std::size_t first, std::size_t last, std::size_t low, std::size_t high) {
        if (first > last) return;
        const std::size_t middle = (first + last) / 2;
        std::size_t best = low;
        for (std::size_t cut = low; cut <= std::min(high, middle - 1); ++cut) {
            const std::int64_t total = least_[cut] + padding(cut, middle);
            if (total >= next_[middle]) continue;
            next_[middle] = total;
            best = cut;
        }
        cut_.back()[middle] = best;
        if (middle > first) solve(first, middle - 1, low, best);
        solve(middle + 1, last, best, high);
    }

    std::vector<std::int32_t> lengths_;
    std::vector<std::int64_t> sum_;
    std::vector<std::int64_t> least_;
    std::vector<std::int64_t> next_;
    std::vector<std::vector<std::size_t>> cut_;  ///< per bucket and end: its first length
};

}  // namespace

std::vector<std::int32_t> length_buckets(std::span<const std::int32_t> lengths, std::int32_t most) {
    LORATRAIN_CHECK(most >= 1, most, " buckets");
    if (lengths.empty()) return {};
    std::vector<std::int32_t> sorted(lengths.begin(), lengths.end());
    std::sort(sorted.begin(), sorted.end());
    return Buckets(std::move(sorted)).run(most);
}

std::int32_t padded_length(std::span<const std::int32_t> bounds, std::int32_t length) {
    const auto found = std::lower_bound(bounds.begin(), bounds.end(), length);
    LORATRAIN_CHECK(found != bounds.end(), "a length of ", length, " is above all buckets");
    return *found;
}

}  // namespace loratrain
