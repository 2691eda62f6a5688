#include <algorithm>
#include <numeric>

#include "plan/milp.h"
#include "plan/pack/pack_batch.h"

namespace loratrain {

namespace {

constexpr std::int64_t exact_tokens = 16384;      // subset sums count single tokens up to here
constexpr std::size_t most_summed = 64;           // values of one subset sum
constexpr std::size_t most_thresholds = 64;       // of the lower bound
constexpr std::size_t most_milp_variables = 320;  // items * bins
constexpr std::int64_t milp_work = 8000;          // nodes * variables of one solve
constexpr std::int64_t negligible = 64;           // 1/64 of the capacity in the emptiest bin

std::vector<std::int32_t> longest_first(std::span<const std::int64_t> tokens) {
    std::vector<std::int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return tokens[static_cast<std::size_t>(a)] > tokens[static_cast<std::size_t>(b)];
    });
    return order;
}

class FewestBins {
  public:
    FewestBins(std::span<const std::int64_t> tokens, std::int64_t capacity)
        : tokens_(tokens),
          capacity_(capacity),
          total_(std::accumulate(tokens.begin(), tokens.end(), std::int64_t{0})),
          order_(longest_first(tokens)) {}

    Bins greedy() const {
        Bins bins;
        std::vector<std::int64_t> room;
        for (const std::int32_t item : order_) {
            const auto found = std::find_if(
                room.begin(), room.end(), [&](std::int64_t left) { return left >= length(item); });
            const auto bin = static_cast<std::size_t>(found - room.begin());
            if (found == room.end()) {
                room.push_back(capacity_);
                bins.emplace_back();
            }
            room[bin] -= length(item);
            bins[bin].push_back(item);
        }
        return sorted(std::move(bins));
    }

    Bins fewest(const FillEffort& effort) const {
        Bins best = greedy();
        const std::int64_t bound = least_bins(tokens_, capacity_);
        if (!proven(best, bound)) improve(best, by_subset_sums());
        const bool solver = effort.milp && milp_available();
        if (std::ssize(best) > bound && solver) improve(best, fewer_bins(std::ssize(best), effort));
        if (!proven(best, bound) && solver) improve(best, emptier_last(best, effort));
        return best;
    }

  private:
    std::int64_t length(std::int32_t item) const { return tokens_[static_cast<std::size_t>(item)]; }

    std::int64_t sum(const std::vector<std::int32_t>& bin) const {
        return std::accumulate(bin.begin(), bin.end(), std::int64_t{0},
                               [&](std::int64_t s, std::int32_t item) { return s + length(item); });
    }

    Bins sorted(Bins bins) const {
        std::erase_if(bins, [](const auto& bin) { return bin.empty(); });
        for (auto& bin : bins) std::sort(bin.begin(), bin.end());
        std::stable_sort(bins.begin(), bins.end(),
                         [&](const auto& a, const auto& b) { return sum(a) > sum(b); });
        return bins;
    }

    bool proven(const Bins& bins, std::int64_t bound) const {
        if (std::ssize(bins) > bound) return false;
        const std::int64_t least = std::max(total_ - (bound - 1) * capacity_, shortest());
        return sum(bins.back()) <= least + capacity_ / negligible;
    }

    std::int64_t shortest() const { return length(order_.back()); }

    void improve(Bins& best, Bins candidate) const {
        if (candidate.empty()) return;
        if (candidate.size() > best.size()) return;
        if (candidate.size() < best.size() || sum(candidate.back()) < sum(best.back())) {
            best = std::move(candidate);
        }
    }

    /// Bin after bin: the longest item left, and those that fill the rest of the bin best.
    Bins by_subset_sums() const {
        std::vector<std::int32_t> left = order_;
        Bins bins;
        while (!left.empty()) {
            std::vector<std::int32_t>& bin = bins.emplace_back();
            bin.push_back(left.front());
            left.erase(left.begin());
            std::int64_t room = capacity_ - length(bin.front());
            while (left.size() > most_summed && room > 0) {
                const auto fits = std::find_if(left.begin(), left.end(), [&](std::int32_t item) {
                    return 4 * length(item) <= room;
                });
                if (fits == left.end()) break;
                room -= length(*fits);
                bin.push_back(*fits);
                left.erase(fits);
            }
            fill(bin, left, room);
        }
        return sorted(std::move(bins));
    }

    void fill(std::vector<std::int32_t>& bin, std::vector<std::int32_t>& left,
              std::int64_t room) const {
        std::vector<std::size_t> places;
        std::vector<std::int64_t> values;
        for (std::size_t i = 0; i < left.size() && places.size() < most_summed; ++i) {
            if (length(left[i]) > room) continue;
            places.push_back(i);
            values.push_back(length(left[i]));
        }
        SubsetRoom sums;
        const auto chosen = nearest_subset(values, room, room, exact_tokens, sums);
        for (auto at = chosen.rbegin(); at != chosen.rend(); ++at) {
            const auto place = static_cast<std::ptrdiff_t>(places[static_cast<std::size_t>(*at)]);
            bin.push_back(left[static_cast<std::size_t>(place)]);
            left.erase(left.begin() + place);
        }
    }

    /// Columns x[item][bin], items longest first; an item may only go into the first bins, as
    /// bins are alike: item i into one of bins 0 .. i, and (with a special one) the last.
    struct Model {
        Milp milp;
        std::vector<std::vector<int>> column;  ///< [place in order_][bin], -1 = not allowed
    };

    Model assignment(std::size_t bins, bool special_last) const {
        Model model;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            std::vector<int>& columns = model.column.emplace_back(bins, -1);
            Milp::Row once{1.0, 1.0, {}};
            for (std::size_t b = 0; b < bins; ++b) {
                if (b > i && !(special_last && b + 1 == bins)) continue;
                columns[b] = static_cast<int>(model.milp.columns.size());
                once.terms.push_back({columns[b], 1.0});
                model.milp.columns.emplace_back();
            }
            model.milp.rows.push_back(std::move(once));
        }
        return model;
    }

    std::vector<Milp::Term> load_of(const Model& model, std::size_t bin) const {
        std::vector<Milp::Term> terms;
        for (std::size_t i = 0; i < order_.size(); ++i) {
            const int column = model.column[i][bin];
            if (column >= 0) terms.push_back({column, static_cast<double>(length(order_[i]))});
        }
        return terms;
    }

    Bins solve(const Model& model, std::size_t bins, MilpLimits limits,
               const FillEffort& effort) const {
        limits.nodes = milp_work / std::ssize(model.milp.columns);
        limits.seconds = effort.seconds;
        const std::optional<MilpSolution> solution = solve_milp(model.milp, limits);
        if (!solution) return {};
        Bins result(bins);
        for (std::size_t i = 0; i < order_.size(); ++i) {
            for (std::size_t b = 0; b < bins; ++b) {
                const int column = model.column[i][b];
                if (column < 0 || solution->values[static_cast<std::size_t>(column)] < 0.5)
                    continue;
                result[b].push_back(order_[i]);
            }
        }
        const bool fits = std::all_of(result.begin(), result.end(),
                                      [&](const auto& bin) { return sum(bin) <= capacity_; });
        return fits ? sorted(std::move(result)) : Bins();
    }

    /// MILP 1: z[bin] = used, used ones first, as few as possible.
    Bins fewer_bins(std::ptrdiff_t known, const FillEffort& effort) const {
        const auto bins = static_cast<std::size_t>(known - 1);
        if (bins * order_.size() > most_milp_variables) return {};
        Model model = assignment(bins, false);
        int before = -1;
        for (std::size_t b = 0; b < bins; ++b) {
            const auto used = static_cast<int>(model.milp.columns.size());
            model.milp.columns.push_back({0.0, 1.0, 1.0, true});
            Milp::Row load;
            load.terms = load_of(model, b);
            load.terms.push_back({used, -static_cast<double>(capacity_)});
            load.upper = 0.0;
            model.milp.rows.push_back(std::move(load));
            if (before >= 0) {
                Milp::Row order;
                order.terms = {{used, 1.0}, {before, -1.0}};
                order.upper = 0.0;
                model.milp.rows.push_back(std::move(order));
            }
            before = used;
        }
        return solve(model, bins, {}, effort);
    }

    /// MILP 2: the number of bins is fixed, the last one as empty as possible.
    Bins emptier_last(const Bins& best, const FillEffort& effort) const {
        const std::size_t bins = best.size();
        if (bins < 2 || bins * order_.size() > most_milp_variables) return {};
        Model model = assignment(bins, true);
        for (std::size_t b = 0; b < bins; ++b) {
            Milp::Row load;
            load.terms = load_of(model, b);
            load.upper = static_cast<double>(b + 1 < bins ? capacity_ : sum(best.back()) - 1);
            load.lower = b + 1 < bins ? load.lower : 1.0;
            for (const Milp::Term& term : load.terms) {
                if (b + 1 < bins) break;
                model.milp.columns[static_cast<std::size_t>(term.column)].objective = term.factor;
            }
            model.milp.rows.push_back(std::move(load));
        }
        return solve(model, bins, {}, effort);
    }

    std::span<const std::int64_t> tokens_;
    std::int64_t capacity_;
    std::int64_t total_;
    std::vector<std::int32_t> order_;
};

/// Martello and Toth's L2 for one threshold: items above capacity - threshold are alone but for
/// items below threshold; those above half the capacity never share a bin.
std::int64_t bound_of_threshold(std::span<const std::int64_t> tokens, std::int64_t capacity,
                                std::int64_t threshold) {
    std::int64_t alone = 0;
    std::int64_t halves = 0;
    std::int64_t room = 0;
    std::int64_t rest = 0;
    for (const std::int64_t length : tokens) {
        if (length > capacity - threshold) {
            ++alone;
        } else if (2 * length > capacity) {
            ++halves;
            room += capacity - length;
        } else if (length >= threshold) {
            rest += length;
        }
    }
    const std::int64_t more = std::max<std::int64_t>(0, rest - room);
    return alone + halves + (more + capacity - 1) / capacity;
}

}  // namespace

Bins pack_greedy(std::span<const std::int64_t> tokens, std::int64_t capacity) {
    return tokens.empty() ? Bins() : FewestBins(tokens, capacity).greedy();
}

std::int64_t least_bins(std::span<const std::int64_t> tokens, std::int64_t capacity) {
    std::int64_t bound = bound_of_threshold(tokens, capacity, 0);
    const std::size_t stride = 1 + tokens.size() / most_thresholds;
    for (std::size_t i = 0; i < tokens.size(); i += stride) {
        if (2 * tokens[i] > capacity) continue;
        bound = std::max(bound, bound_of_threshold(tokens, capacity, tokens[i]));
    }
    return bound;
}

Bins pack_fewest(std::span<const std::int64_t> tokens, std::int64_t capacity,
                 const FillEffort& effort) {
    return tokens.empty() ? Bins() : FewestBins(tokens, capacity).fewest(effort);
}

}  // namespace loratrain
