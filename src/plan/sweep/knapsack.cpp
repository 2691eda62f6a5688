#include "plan/sweep/knapsack.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace loratrain {

namespace {

constexpr double rounding = 1e-9;  // of the capacities

class KnapsackSearch {
  public:
    KnapsackSearch(const Knapsack& problem, double cutoff, std::int64_t nodes)
        : items_(problem.items), nodes_(nodes), counts_(items_.size(), 0) {
        best_.value = cutoff;
        for (std::size_t i = 0; i < items_.size(); ++i) {
            if (items_[i].value > 0.0 && items_[i].count > 0) order_.push_back(i);
        }
        find_weights();
        std::stable_sort(order_.begin(), order_.end(),
                         [&](std::size_t a, std::size_t b) { return density(a) > density(b); });
    }

    KnapsackSolution run() {
        descend(0, 0.0, {1.0 + rounding, 1.0 + rounding});
        return best_;
    }

  private:
    struct Room {
        double first = 0.0;
        double second = 0.0;
    };

    /// A constraint that all items together respect says nothing.
    void find_weights() {
        Room all;
        for (const std::size_t i : order_) {
            all.first += items_[i].count * items_[i].first;
            all.second += items_[i].count * items_[i].second;
        }
        weight_.first = all.first > 1.0 ? 1.0 : 0.0;
        weight_.second = all.second > 1.0 ? 1.0 : 0.0;
    }

    double weight(std::size_t i) const {
        return weight_.first * items_[i].first + weight_.second * items_[i].second;
    }
    double density(std::size_t i) const {
        const double of_item = weight(i);
        return of_item > 0.0 ? items_[i].value / of_item : std::numeric_limits<double>::max();
    }

    /// Of the items from `next` on, in parts.
    double relaxed(std::size_t next, const Room& room) const {
        double left = weight_.first * room.first + weight_.second * room.second;
        double value = 0.0;
        for (; next < order_.size(); ++next) {
            const std::size_t i = order_[next];
            const double all = items_[i].count * weight(i);
            if (all > left) return value + items_[i].value * left / weight(i);
            left -= all;
            value += items_[i].value * items_[i].count;
        }
        return value;
    }

    std::int32_t most(std::size_t i, const Room& room) const {
        double fit = items_[i].count;
        if (items_[i].first > 0.0) fit = std::min(fit, std::floor(room.first / items_[i].first));
        if (items_[i].second > 0.0) fit = std::min(fit, std::floor(room.second / items_[i].second));
        return static_cast<std::int32_t>(std::max(fit, 0.0));
    }

    void descend(std::size_t next, double value, const Room& room) {
        if (value > best_.value) {
            best_.value = value;
            best_.counts = counts_;
        }
        if (next == order_.size() || --nodes_ < 0) return;
        const double needed = best_.value + rounding * std::abs(best_.value);
        if (value + relaxed(next, room) <= needed) return;
        const std::size_t i = order_[next];
        for (std::int32_t n = most(i, room); n >= 0; --n) {
            counts_[i] = n;
            descend(next + 1, value + n * items_[i].value,
                    {room.first - n * items_[i].first, room.second - n * items_[i].second});
        }
        counts_[i] = 0;
    }

    const std::vector<Knapsack::Item>& items_;
    std::int64_t nodes_;
    std::vector<std::size_t> order_;  ///< of the items that are worth something
    Room weight_;
    std::vector<std::int32_t> counts_;
    KnapsackSolution best_;
};

}  // namespace

KnapsackSolution solve_knapsack(const Knapsack& problem, double cutoff, std::int64_t nodes) {
    return KnapsackSearch(problem, cutoff, nodes).run();
}

}  // namespace loratrain
