#include <algorithm>
#include <numeric>

#include "plan/pack/pack_variants.h"
#include "plan/pack/subset_sum.h"

namespace loratrain {

namespace {

constexpr std::int64_t resolution = 512;         // of a microbatch's cost
constexpr std::size_t most_samples_summed = 24;  // samples among which the sum is sought
constexpr std::int64_t nearly_equal = 100;       // 1/100 of the target missing: nothing is added
constexpr std::int64_t slightly_above = 50;      // 1/50 above the target: still one microbatch
constexpr std::int64_t most_above = 8;           // a chosen sum exceeds the target by 1/8 at most

class Stream {
  public:
    Stream(const BlockItems& block, const std::vector<Portion>& portions, std::int64_t target)
        : block_(block), target_(target) {
        for (const Portion& portion : portions) {
            std::vector<std::int32_t>& pool = pools_.emplace_back(portion.items);
            std::stable_sort(pool.begin(), pool.end(), [&](std::int32_t a, std::int32_t b) {
                return block.item(a).cost > block.item(b).cost;
            });
        }
    }

    Bins run() {
        for (std::size_t p = 0; p < pools_.size(); ++p) {
            while (!pools_[p].empty()) next_bin(p);
        }
        return std::move(bins_);
    }

  private:
    using Pool = std::vector<std::int32_t>;  ///< what is left of a portion, costly first

    void next_bin(std::size_t p) {
        bins_.emplace_back();
        cost_ = tokens_ = 0;
        batches_.clear();
        if (!rest_fits(pools_[p])) {
            Pool taken{pools_[p].front()};
            put(taken.front());
            remove(pools_[p], taken);
            top_up(pools_[p]);
            return;
        }
        for (const std::int32_t item : pools_[p]) put(item);
        pools_[p].clear();
        for (std::size_t next = p + 1; next < pools_.size() && pools_[next - 1].empty(); ++next) {
            top_up(pools_[next]);
        }
    }

    bool rest_fits(const Pool& pool) const {
        std::int64_t cost = 0;
        std::int64_t tokens = 0;
        for (const std::int32_t item : pool) {
            cost += block_.item(item).cost;
            tokens += block_.item(item).tokens;
        }
        return cost <= target_ + target_ / slightly_above && tokens <= block_.capacity;
    }

    void put(std::int32_t item) {
        bins_.back().push_back(item);
        cost_ += block_.item(item).cost;
        tokens_ += block_.item(item).tokens;
        const std::int32_t batch = block_.item(item).batch;
        if (std::find(batches_.begin(), batches_.end(), batch) == batches_.end()) {
            batches_.push_back(batch);
        }
    }

    static void remove(Pool& pool, const Pool& taken) {
        std::erase_if(pool, [&](std::int32_t item) {
            return std::find(taken.begin(), taken.end(), item) != taken.end();
        });
    }

    bool fits(std::int32_t item) const {
        return tokens_ + block_.item(item).tokens <= block_.capacity;
    }

    /// The open microbatch holds no other batch of the item's adapter.
    bool may_join(std::int32_t item) const {
        const std::int32_t batch = block_.item(item).batch;
        return std::all_of(batches_.begin(), batches_.end(), [&](std::int32_t other) {
            return other == batch || block_.batch(other).adapter != block_.batch(batch).adapter;
        });
    }

    /// Adds what brings the open microbatch nearest to the target: costly samples while they are
    /// small beside what is missing, then the best sum of some.
    void top_up(Pool& pool) {
        if (cost_ >= target_ - target_ / nearly_equal) return;
        Pool eligible;
        for (const std::int32_t item : pool) {
            if (fits(item) && may_join(item)) eligible.push_back(item);
        }
        Pool taken;
        std::size_t next = 0;
        while (eligible.size() - next > most_samples_summed &&
               4 * block_.item(eligible[next]).cost <= target_ - cost_ && fits(eligible[next])) {
            taken.push_back(eligible[next]);
            put(eligible[next++]);
        }
        eligible.erase(eligible.begin(), eligible.begin() + static_cast<std::ptrdiff_t>(next));
        add_nearest(eligible, taken);
        remove(pool, taken);
    }

    void add_nearest(const Pool& eligible, Pool& taken) {
        const std::size_t count = std::min(eligible.size(), most_samples_summed);
        Pool summed;
        std::vector<std::int64_t> costs;
        for (std::size_t i = 0; i < count; ++i) {
            summed.push_back(eligible[i * eligible.size() / count]);
            costs.push_back(block_.item(summed.back()).cost);
        }
        const std::int64_t missing = target_ - cost_;
        for (const std::int32_t at :
             nearest_subset(costs, missing, missing + target_ / most_above, resolution)) {
            const std::int32_t item = summed[static_cast<std::size_t>(at)];
            if (!fits(item)) continue;
            taken.push_back(item);
            put(item);
        }
    }

    const BlockItems& block_;
    std::int64_t target_;
    std::vector<Pool> pools_;
    Bins bins_;
    std::int64_t cost_ = 0;  ///< of the last bin
    std::int64_t tokens_ = 0;
    std::vector<std::int32_t> batches_;  ///< that the last bin holds
};

}  // namespace

Bins pack_stream(const BlockItems& block, const std::vector<Portion>& portions,
                 std::int64_t target) {
    return Stream(block, portions, target).run();
}

}  // namespace loratrain
