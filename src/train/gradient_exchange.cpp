#include "train/gradient_exchange.h"

#include <algorithm>
#include <numeric>

namespace loratrain {

namespace {

constexpr std::int64_t values_at_once = 16 << 20;  // of all ranks

/// Per rank, where its first value stands.
std::vector<std::size_t> begins_of(const std::vector<int>& counts) {
    std::vector<std::size_t> begins(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::size_t{0});
    return begins;
}

const UnitHolder* holder_on(const GradUnit& unit, int rank) {
    const auto found = std::find_if(unit.holders.begin(), unit.holders.end(),
                                    [&](const UnitHolder& h) { return h.rank == rank; });
    return found == unit.holders.end() ? nullptr : &*found;
}

}  // namespace

GradientExchange::GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan)
    : job_(job), plan_(plan), rank_(mpi.rank()), ranks_(mpi.size()), exchange_(mpi) {}

const GradientExchange::Route& GradientExchange::route_of(AdapterId adapter) {
    const auto [known, fresh] = routes_.try_emplace(adapter);
    Route& route = known->second;
    if (!fresh) return route;
    route.units = grad_units(job_.adapter(adapter), adapter, plan_);
    std::int64_t values = 0;
    for (std::size_t u = 0; u < route.units.size(); ++u) {
        const GradUnit& unit = route.units[u];
        const std::int64_t more = unit.count * std::ssize(unit.holders);
        if (u == 0 || values + more > values_at_once) {
            route.chunks.push_back({u, u});
            values = 0;
        }
        values += more;
        route.chunks.back().end = u + 1;
    }
    return route;
}

GradientExchange::Sums GradientExchange::reduce(AdapterId adapter, double loss, AdapterBank& bank,
                                                const RankExchange::Meanwhile& meanwhile) {
    const Route& route = route_of(adapter);
    meanwhile_ = meanwhile;
    std::vector<float> gradients = bank.gradients(adapter);
    double squares = 0.0;
    for (const Chunk& chunk : route.chunks) {
        squares += reduce_chunk(
            std::span(route.units).subspan(chunk.begin, chunk.end - chunk.begin), gradients);
    }
    bank.set_gradients(adapter, gradients);
    const double own[] = {squares, loss};
    std::vector<double> all(2 * static_cast<std::size_t>(ranks_));
    exchange_.all_gather(own, all, meanwhile_);
    meanwhile_ = {};
    Sums sums;
    for (std::size_t i = 0; i < all.size(); i += 2) {
        sums.squares += all[i];
        sums.loss += all[i + 1];
    }
    return sums;
}

/// Returns the squares of the units that this rank owns.
double GradientExchange::reduce_chunk(std::span<const GradUnit> units,
                                      std::vector<float>& gradients) {
    count(units);
    pack(units, gradients);
    exchange_.all_to_all(own_, to_owners_, owned_, from_holders_, meanwhile_);
    const double squares = add_up(units);
    exchange_.all_to_all(owned_, from_holders_, own_, to_owners_, meanwhile_);
    unpack(units, gradients);
    return squares;
}

void GradientExchange::count(std::span<const GradUnit> units) {
    to_owners_.assign(static_cast<std::size_t>(ranks_), 0);
    from_holders_.assign(static_cast<std::size_t>(ranks_), 0);
    for (const GradUnit& unit : units) {
        const int values = static_cast<int>(unit.count);
        if (holder_on(unit, rank_) != nullptr) {
            to_owners_[static_cast<std::size_t>(unit.owner)] += values;
        }
        if (unit.owner != rank_) continue;
        for (const UnitHolder& holder : unit.holders) {
            from_holders_[static_cast<std::size_t>(holder.rank)] += values;
        }
    }
    own_.resize(std::accumulate(to_owners_.begin(), to_owners_.end(), std::size_t{0}));
    owned_.resize(std::accumulate(from_holders_.begin(), from_holders_.end(), std::size_t{0}));
}

void GradientExchange::pack(std::span<const GradUnit> units, const std::vector<float>& gradients) {
    std::vector<std::size_t> at = begins_of(to_owners_);
    for (const GradUnit& unit : units) {
        const UnitHolder* holder = holder_on(unit, rank_);
        if (holder == nullptr) continue;
        const auto whole = static_cast<std::size_t>(holder->cut.whole_count());
        const std::vector<float> values =
            cut_out(holder->cut, {gradients.data() + holder->first, whole});
        std::size_t& place = at[static_cast<std::size_t>(unit.owner)];
        std::copy(values.begin(), values.end(), own_.data() + place);
        place += values.size();
    }
}

/// Every holder's values of an owned unit become the sum.
double GradientExchange::add_up(std::span<const GradUnit> units) {
    std::vector<std::size_t> at = begins_of(from_holders_);
    std::vector<float> sum;
    double squares = 0.0;
    for (const GradUnit& unit : units) {
        if (unit.owner != rank_) continue;
        const auto place_of = [&](const UnitHolder& holder) {
            return owned_.data() + at[static_cast<std::size_t>(holder.rank)];
        };
        const auto count = static_cast<std::size_t>(unit.count);
        sum.assign(place_of(unit.holders.front()), place_of(unit.holders.front()) + count);
        for (std::size_t h = 1; h < unit.holders.size(); ++h) {
            const float* values = place_of(unit.holders[h]);
            for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
        }
        for (const float value : sum) squares += double{value} * double{value};
        for (const UnitHolder& holder : unit.holders) {
            std::copy(sum.begin(), sum.end(), place_of(holder));
            at[static_cast<std::size_t>(holder.rank)] += count;
        }
    }
    return squares;
}

void GradientExchange::unpack(std::span<const GradUnit> units, std::vector<float>& gradients) {
    std::vector<std::size_t> at = begins_of(to_owners_);
    for (const GradUnit& unit : units) {
        const UnitHolder* holder = holder_on(unit, rank_);
        if (holder == nullptr) continue;
        std::size_t& place = at[static_cast<std::size_t>(unit.owner)];
        const auto count = static_cast<std::size_t>(unit.count);
        const auto whole = static_cast<std::size_t>(holder->cut.whole_count());
        paste(holder->cut, {own_.data() + place, count}, {gradients.data() + holder->first, whole});
        place += count;
    }
}

}  // namespace loratrain
