#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "plan/pack/pack_batch.h"

namespace loratrain {

namespace {

constexpr std::int64_t most_considered = 200000;  // exchanges in all
constexpr std::int64_t nearly_even = 512;         // 1/512 of the mean above it: good enough

class Evening {
  public:
    Evening(std::span<const PackSize> items, std::int64_t capacity, std::int64_t bins)
        : items_(items),
          capacity_(capacity),
          bins_(static_cast<std::size_t>(bins)),
          load_(bins_.size()) {
        for (auto& bin : bins_) bin.reserve(2 * items.size() / bins_.size() + 1);
    }

    std::optional<Bins> run() {
        if (!spread()) return std::nullopt;
        for (const PackSize& load : load_) mean_ += load.cost;
        mean_ /= std::ssize(load_);
        while (considered_ < most_considered && improve()) {
        }
        return sorted();
    }

  private:
    using CostOfBin = std::pair<std::int64_t, std::size_t>;
    using CheapestBins = std::priority_queue<CostOfBin, std::vector<CostOfBin>, std::greater<>>;

    const PackSize& item(std::int32_t i) const { return items_[static_cast<std::size_t>(i)]; }

    bool spread() {
        std::vector<std::int32_t> order(items_.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            return item(a).cost > item(b).cost;
        });
        std::vector<CostOfBin> empty;
        empty.reserve(bins_.size());
        for (std::size_t b = 0; b < bins_.size(); ++b) empty.emplace_back(0, b);
        CheapestBins cheapest(std::greater<>(), std::move(empty));
        for (const std::int32_t i : order) {
            const std::size_t bin = take_with_room(cheapest, item(i).tokens);
            if (bin == bins_.size()) return false;
            add(bin, i);
            cheapest.emplace(load_[bin].cost, bin);
        }
        return std::none_of(bins_.begin(), bins_.end(),
                            [](const auto& bin) { return bin.empty(); });
    }

    /// Takes the cheapest bin with room out of the queue; the number of bins when there is none.
    std::size_t take_with_room(CheapestBins& cheapest, std::int64_t tokens) const {
        std::vector<CostOfBin> full;
        std::size_t found = bins_.size();
        while (!cheapest.empty() && found == bins_.size()) {
            const CostOfBin top = cheapest.top();
            cheapest.pop();
            if (load_[top.second].tokens + tokens <= capacity_) {
                found = top.second;
            } else {
                full.push_back(top);
            }
        }
        for (const CostOfBin& bin : full) cheapest.push(bin);
        return found;
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

    /// The exchange that leaves the least, the first of equally good ones in the order of bins and
    /// of the items in them.
    bool improve() {
        const auto top = static_cast<std::size_t>(
            std::max_element(load_.begin(), load_.end(), cheaper) - load_.begin());
        if (load_[top].cost - mean_ <= mean_ / nearly_even) return false;
        count_considered(top);
        const auto cheapest = static_cast<std::size_t>(
            std::min_element(load_.begin(), load_.end(), cheaper) - load_.begin());
        Exchange best;
        best.larger = load_[top].cost;
        Exchange reachable = best;
        consider_bin(top, cheapest, reachable);
        for (std::size_t other = 0; other < bins_.size(); ++other) {
            const std::int64_t least = (load_[top].cost + load_[other].cost + 1) / 2;
            if (other == top || least > reachable.larger || least >= best.larger) continue;
            consider_bin(top, other, best);
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

    static bool cheaper(const PackSize& a, const PackSize& b) { return a.cost < b.cost; }

    /// All exchanges of the bin count, those too that bounds leave out.
    void count_considered(std::size_t top) {
        const std::int64_t given = std::ssize(bins_[top]);
        const std::int64_t moves = given > 1 ? std::ssize(bins_) - 1 : 0;
        considered_ += given * (moves + std::ssize(items_) - given);
    }

    void consider_bin(std::size_t top, std::size_t other, Exchange& best) const {
        if (other == top) return;
        for (const std::int32_t give : bins_[top]) {
            if (bins_[top].size() > 1) consider(top, {other, give, -1, 0}, best);
            for (const std::int32_t back : bins_[other]) {
                consider(top, {other, give, back, 0}, best);
            }
        }
    }

    void consider(std::size_t top, Exchange exchange, Exchange& best) const {
        const PackSize none;
        const PackSize& give = item(exchange.give);
        const PackSize& back = exchange.back < 0 ? none : item(exchange.back);
        const std::int64_t moved = give.cost - back.cost;
        if (moved <= 0) return;
        exchange.larger = std::max(load_[top].cost - moved, load_[exchange.other].cost + moved);
        if (exchange.larger >= best.larger) return;
        const std::int64_t tokens = give.tokens - back.tokens;
        if (load_[exchange.other].tokens + tokens > capacity_) return;
        if (load_[top].tokens - tokens > capacity_) return;
        best = exchange;
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
    std::int64_t mean_ = 0;  ///< cost of a bin
    std::int64_t considered_ = 0;
};

}  // namespace

std::optional<Bins> pack_even(std::span<const PackSize> items, std::int64_t capacity,
                              std::int64_t bins) {
    return Evening(items, capacity, bins).run();
}

}  // namespace loratrain
