#include "plan/pack/pack_balanced.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/rng.h"

namespace loratrain {

namespace {

constexpr double simulated_microbatches = 16e6;  // on all stages, of all changes together
constexpr double warmest = 6e-4;                 // of the time, accepted on top at first
constexpr int few_blocks = 1;                    // of the block, in a row
constexpr int more_blocks = 3;
constexpr std::int64_t reach = 12;      // microbatches
constexpr double numbers = 16777216.0;  // of uniform_float()

enum class Change : std::uint8_t { move_item, swap_items, move_bin, cut_bin };
/// As often as others do good.
constexpr std::array changes{Change::move_item, Change::move_item, Change::swap_items,
                             Change::move_bin,  Change::move_bin,  Change::move_bin,
                             Change::move_bin,  Change::cut_bin};

class Annealing {
  public:
    Annealing(const PackRules& rules, const BlockItems& block) : rules_(rules), block_(block) {}

    ImprovedPacking run(Bins bins) {
        now_ = std::move(bins);
        nanoseconds_ = steady_time(rules_, block_, now_);
        ImprovedPacking best{now_, nanoseconds_};
        const std::uint64_t tries = number_of_tries();
        for (std::uint64_t i = 0; i < tries; ++i) {
            const double left = 1.0 - static_cast<double>(i) / static_cast<double>(tries);
            try_one(warmest * left);
            if (nanoseconds_ < best.nanoseconds) best = {now_, nanoseconds_};
        }
        return best;
    }

  private:
    std::uint64_t number_of_tries() const {
        const double simulated = static_cast<double>(now_.size()) *
                                 static_cast<double>(rules_.stages.size()) *
                                 (few_blocks + more_blocks);
        const auto affordable = static_cast<std::uint64_t>(simulated_microbatches / simulated);
        return std::min<std::uint64_t>(
            affordable, static_cast<std::uint64_t>(rules_.changes_per_item) * block_.items.size());
    }

    std::uint64_t draw(std::uint64_t bound) { return uniform_int(key, drawn_++, bound); }

    /// Uniform in (0, 1].
    double draw_share() { return (static_cast<double>(draw(1U << 24U)) + 1.0) / numbers; }

    /// A microbatch up to `reach` away from another.
    std::size_t near(std::size_t bin) {
        const auto count = static_cast<std::int64_t>(now_.size());
        const auto away = static_cast<std::int64_t>(draw(2 * reach + 1)) - reach;
        return static_cast<std::size_t>(
            std::clamp<std::int64_t>(static_cast<std::int64_t>(bin) + away, 0, count - 1));
    }

    void try_one(double warmth) {
        const std::optional<Bins> next = changed();
        if (!next || !is_valid(*next)) return;
        const std::int64_t next_time = steady_time(rules_, block_, *next);
        const double longer =
            static_cast<double>(next_time - nanoseconds_) / static_cast<double>(nanoseconds_);
        if (longer > 0.0 && longer > -warmth * std::log(draw_share())) return;
        now_ = *next;
        nanoseconds_ = next_time;
    }

    std::optional<Bins> changed() {
        const auto from = static_cast<std::size_t>(draw(now_.size()));
        const std::size_t to = near(from);
        const Change change = changes[draw(changes.size())];
        if (change == Change::cut_bin) return cut(from);
        if (from == to) return std::nullopt;
        if (change == Change::move_bin) return moved(from, to);
        const auto item = static_cast<std::size_t>(draw(now_[from].size()));
        Bins next = now_;
        if (change == Change::swap_items) {
            std::swap(next[from][item], next[to][draw(next[to].size())]);
            return next;
        }
        next[to].push_back(next[from][item]);
        next[from].erase(next[from].begin() + static_cast<std::ptrdiff_t>(item));
        if (next[from].empty()) next.erase(next.begin() + static_cast<std::ptrdiff_t>(from));
        return next;
    }

    std::optional<Bins> cut(std::size_t bin) const {
        const std::vector<std::int32_t>& items = now_[bin];
        if (items.size() < 2) return std::nullopt;
        const auto middle = items.begin() + std::ssize(items) / 2;
        Bins next = now_;
        next[bin].assign(items.begin(), middle);
        next.insert(next.begin() + static_cast<std::ptrdiff_t>(bin) + 1,
                    std::vector<std::int32_t>(middle, items.end()));
        return next;
    }

    Bins moved(std::size_t from, std::size_t to) const {
        Bins next = now_;
        const auto first = next.begin() + static_cast<std::ptrdiff_t>(std::min(from, to));
        const auto last = next.begin() + static_cast<std::ptrdiff_t>(std::max(from, to)) + 1;
        std::rotate(first, from < to ? first + 1 : last - 1, last);
        return next;
    }

    bool is_valid(const Bins& bins) const {
        std::vector<std::pair<std::size_t, std::size_t>> extents(
            block_.batches.size(), {std::numeric_limits<std::size_t>::max(), 0});
        for (std::size_t m = 0; m < bins.size(); ++m) {
            std::int64_t tokens = 0;
            for (const std::int32_t i : bins[m]) {
                tokens += block_.item(i).tokens;
                auto& [first, last] = extents[static_cast<std::size_t>(block_.item(i).batch)];
                first = std::min(first, m);
                last = m;
            }
            if (tokens > block_.capacity) return false;
        }
        for (std::size_t b = 0; b < extents.size(); ++b) {
            const std::int32_t previous = block_.batches[b].previous;
            if (previous < 0) continue;
            if (extents[static_cast<std::size_t>(previous)].second >= extents[b].first)
                return false;
        }
        return true;
    }

    static constexpr std::uint64_t key = 0x70616b;

    const PackRules& rules_;
    const BlockItems& block_;
    Bins now_;
    std::int64_t nanoseconds_ = 0;
    std::uint64_t drawn_ = 0;
};

}  // namespace

std::int64_t steady_time(const PackRules& rules, const BlockItems& block, const Bins& bins) {
    const auto time = [&](int repeats) {
        return pipeline_time(pipeline_load(rules, block, bins, repeats)).makespan;
    };
    return (time(more_blocks) - time(few_blocks)) / (more_blocks - few_blocks);
}

ImprovedPacking improve_packing(const PackRules& rules, const BlockItems& block, Bins bins) {
    return Annealing(rules, block).run(std::move(bins));
}

}  // namespace loratrain
