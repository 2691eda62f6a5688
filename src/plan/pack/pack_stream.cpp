#include <algorithm>
#include <span>

#include "plan/pack/pack_batch.h"
#include "plan/pack/pack_variants.h"

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
        std::int32_t adapters = 0;
        for (const BlockBatch& batch : block.batches) {
            adapters = std::max(adapters, number(batch.adapter) + 1);
        }
        held_.assign(static_cast<std::size_t>(adapters), none);
        for (const Portion& portion : portions) pools_.push_back(pool_of(portion));
    }

    Bins run() {
        for (std::size_t p = 0; p < pools_.size(); ++p) {
            while (!pools_[p].entries.empty()) next_bin(p);
        }
        close_bin();
        return std::move(bins_);
    }

  private:
    static constexpr std::int32_t none = -1;

    struct Entry {
        std::int64_t cost = 0;
        std::int64_t tokens = 0;
        std::int32_t item = 0;
        std::int32_t batch = 0;
    };
    /// What is left of a portion.
    struct Pool {
        std::vector<Entry> entries;  ///< costly first
        std::int64_t cost = 0;       ///< sums
        std::int64_t tokens = 0;
    };
    using Places = std::vector<std::size_t>;  ///< in a pool, ascending

    Pool pool_of(const Portion& portion) const {
        Pool pool;
        pool.entries.reserve(portion.items.size());
        for (const std::int32_t i : portion.costly_first) {
            const BlockItem& item = block_.item(i);
            pool.entries.push_back({item.cost, item.tokens, i, item.batch});
            pool.cost += item.cost;
            pool.tokens += item.tokens;
        }
        return pool;
    }

    void next_bin(std::size_t p) {
        close_bin();
        if (!rest_fits(pools_[p])) {
            put(pools_[p].entries.front());
            remove(pools_[p], {0});
            top_up(pools_[p]);
            return;
        }
        for (const Entry& entry : pools_[p].entries) put(entry);
        pools_[p] = {};
        for (std::size_t next = p + 1; next < pools_.size() && pools_[next - 1].entries.empty();
             ++next) {
            top_up(pools_[next]);
        }
    }

    void close_bin() {
        if (open_.empty()) return;
        for (const std::int32_t i : open_) held_of(block_.item(i).batch) = none;
        bins_.push_back(open_);
        open_.clear();
        cost_ = tokens_ = 0;
    }

    bool rest_fits(const Pool& pool) const {
        return pool.cost <= target_ + target_ / slightly_above && pool.tokens <= block_.capacity;
    }

    std::int32_t& held_of(std::int32_t batch) { return held_[index(block_.batch(batch).adapter)]; }

    void put(const Entry& entry) {
        open_.push_back(entry.item);
        cost_ += entry.cost;
        tokens_ += entry.tokens;
        held_of(entry.batch) = entry.batch;
    }

    static void remove(Pool& pool, const Places& places) {
        if (places.empty()) return;
        std::size_t to = places.front();
        for (std::size_t i = 0; i < places.size(); ++i) {
            const Entry& taken = pool.entries[places[i]];
            pool.cost -= taken.cost;
            pool.tokens -= taken.tokens;
            const std::size_t end = i + 1 < places.size() ? places[i + 1] : pool.entries.size();
            for (std::size_t from = places[i] + 1; from < end; ++from) {
                pool.entries[to++] = pool.entries[from];
            }
        }
        pool.entries.resize(to);
    }

    bool fits(const Entry& entry) const { return tokens_ + entry.tokens <= block_.capacity; }

    /// The open microbatch holds no other batch of the entry's adapter.
    bool may_join(const Entry& entry) {
        const std::int32_t held = held_of(entry.batch);
        return held == none || held == entry.batch;
    }

    /// Adds what brings the open microbatch nearest to the target: costly samples while they are
    /// small beside what is missing, then the best sum of some.
    void top_up(Pool& pool) {
        if (cost_ >= target_ - target_ / nearly_equal) return;
        eligible_.clear();
        for (std::size_t i = 0; i < pool.entries.size(); ++i) {
            if (fits(pool.entries[i]) && may_join(pool.entries[i])) eligible_.push_back(i);
        }
        taken_.clear();
        std::size_t next = 0;
        for (; eligible_.size() - next > most_samples_summed; ++next) {
            const Entry& entry = pool.entries[eligible_[next]];
            if (4 * entry.cost > target_ - cost_ || !fits(entry)) break;
            taken_.push_back(eligible_[next]);
            put(entry);
        }
        add_nearest(pool, std::span(eligible_).subspan(next));
        remove(pool, taken_);
    }

    void add_nearest(const Pool& pool, std::span<const std::size_t> eligible) {
        const std::size_t count = std::min(eligible.size(), most_samples_summed);
        summed_.clear();
        costs_.clear();
        for (std::size_t i = 0; i < count; ++i) {
            summed_.push_back(eligible[i * eligible.size() / count]);
            costs_.push_back(pool.entries[summed_.back()].cost);
        }
        const std::int64_t missing = target_ - cost_;
        for (const std::int32_t at :
             nearest_subset(costs_, missing, missing + target_ / most_above, resolution, sums_)) {
            const std::size_t place = summed_[static_cast<std::size_t>(at)];
            if (!fits(pool.entries[place])) continue;
            taken_.push_back(place);
            put(pool.entries[place]);
        }
    }

    const BlockItems& block_;
    std::int64_t target_;
    std::vector<Pool> pools_;
    Bins bins_;
    std::vector<std::int32_t> open_;  ///< the bin that is being filled
    std::int64_t cost_ = 0;           ///< of the open bin
    std::int64_t tokens_ = 0;
    std::vector<std::int32_t> held_;  ///< per adapter: the batch that the open bin holds of it
    Places eligible_;                 ///< scratch, as those below
    Places summed_;
    Places taken_;
    std::vector<std::int64_t> costs_;
    SubsetRoom sums_;
};

}  // namespace

Bins pack_stream(const BlockItems& block, const std::vector<Portion>& portions,
                 std::int64_t target) {
    return Stream(block, portions, target).run();
}

}  // namespace loratrain
