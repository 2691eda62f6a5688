#include <algorithm>
#include <numeric>

#include "plan/pack_batch.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_considered = 200000;  // exchanges in all

class Evening {
  public:
    Evening(std::span<const PackSize> items, std::int64_t capacity, std::int64_t bins)
        : items_(items),
          capacity_(capacity),
          bins_(static_cast<std::size_t>(bins)),
          load_(bins_.size()) {}

    std::optional<Bins> run() {
        if (!spread()) return std::nullopt;
        while (considered_ < most_considered && improve()) {
        }
        return sorted();
    }

  private:
    const PackSize& item(std::int32_t i) const { return items_[static_cast<std::size_t>(i)]; }

    bool spread() {
        std::vector<std::int32_t> order(items_.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return item(a).cost > item(b).cost;
        });
        for (const std::int32_t i : order) {
            std::size_t best = bins_.size();
            for (std::size_t b = 0; b < bins_.size(); ++b) {
                if (load_[b].tokens + item(i).tokens > capacity_) continue;
                if (best == bins_.size() || load_[b].cost < load_[best].cost) best = b;
            }
            if (best == bins_.size()) return false;
            add(best, i);
        }
        return std::none_of(bins_.begin(), bins_.end(),
                            [](const auto& bin) { return bin.empty(); });
    }

    void add(std::size_t bin, std::int32_t i) {
        bins_[bin].push_back(i);
        load_[bin].tokens += item(i).tokens;
        load_[bin].cost += item(i).cost;
    }

    void remove(std::size_t bin, std::int32_t i) {
        std::erase(bins_[bin], i);
        load_[bin].tokens -= item(i).tokens;
        load_[bin].cost -= item(i).cost;
    }

    /// An exchange between the costliest bin and another; `back` -1 = a move.
    struct Exchange {
        std::size_t other = 0;
        std::int32_t give = -1;
        std::int32_t back = -1;
        std::int64_t larger = 0;  ///< cost of the costlier of both bins afterwards
    };

    bool improve() {
        const auto top = static_cast<std::size_t>(
            std::max_element(load_.begin(), load_.end(),
                             [](const auto& a, const auto& b) { return a.cost < b.cost; }) -
            load_.begin());
        Exchange best;
        best.larger = load_[top].cost;
        for (std::size_t other = 0; other < bins_.size(); ++other) {
            if (other == top) continue;
            for (const std::int32_t give : bins_[top]) {
                if (bins_[top].size() > 1) consider(top, {other, give, -1, 0}, best);
                for (const std::int32_t back : bins_[other]) {
                    consider(top, {other, give, back, 0}, best);
                }
            }
        }
        if (best.give < 0) return false;
        remove(top, best.give);
        add(best.other, best.give);
        if (best.back >= 0) {
            remove(best.other, best.back);
            add(top, best.back);
        }
        return true;
    }

    void consider(std::size_t top, Exchange exchange, Exchange& best) {
        ++considered_;
        const PackSize none;
        const PackSize& give = item(exchange.give);
        const PackSize& back = exchange.back < 0 ? none : item(exchange.back);
        const std::int64_t moved = give.cost - back.cost;
        if (moved <= 0) return;
        const std::int64_t tokens = give.tokens - back.tokens;
        if (load_[exchange.other].tokens + tokens > capacity_) return;
        if (load_[top].tokens - tokens > capacity_) return;
        exchange.larger = std::max(load_[top].cost - moved, load_[exchange.other].cost + moved);
        if (exchange.larger < best.larger) best = exchange;
    }

    Bins sorted() {
        std::vector<std::size_t> order(bins_.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return load_[a].cost > load_[b].cost;
        });
        Bins result;
        for (const std::size_t bin : order) {
            result.push_back(std::move(bins_[bin]));
            std::sort(result.back().begin(), result.back().end());
        }
        return result;
    }

    std::span<const PackSize> items_;
    std::int64_t capacity_;
    Bins bins_;
    std::vector<PackSize> load_;
    std::int64_t considered_ = 0;
};

}  // namespace

std::optional<Bins> pack_even(std::span<const PackSize> items, std::int64_t capacity,
                              std::int64_t bins) {
    return Evening(items, capacity, bins).run();
}

}  // namespace loratrain
