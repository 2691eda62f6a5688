#include "train/gradient_exchange.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "base/activity.h"
#include "base/error.h"
#include "plan/memory/memory_model.h"

namespace loratrain {

namespace {

constexpr std::chrono::microseconds between_looks_at_exchange{20};

/// Per rank, where its first value stands.
std::vector<std::size_t> begins_of(const std::vector<int>& counts) {
    std::vector<std::size_t> begins(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::size_t{0});
    return begins;
}

std::size_t sum_of(const std::vector<int>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

const UnitHolder* holder_on(const GradUnit& unit, int rank) {
    const auto found = std::find_if(unit.holders.begin(), unit.holders.end(),
                                    [&](const UnitHolder& h) { return h.rank == rank; });
    return found == unit.holders.end() ? nullptr : &*found;
}

/// What every rank sends and receives in a chunk.
class ChunkRoom {
  public:
    ChunkRoom(int ranks, std::int64_t most)
        : most_(most), values_(2 * static_cast<std::size_t>(ranks)) {}

    void clear() { std::fill(values_.begin(), values_.end(), 0); }
    /// False, and nothing is taken, where a rank has no room for it.
    bool take(const GradUnit& unit) {
        bool fits = true;
        add(unit, unit.count);
        for (const std::int64_t values : values_) fits = fits && values <= most_;
        if (!fits) add(unit, -unit.count);
        return fits;
    }

  private:
    void add(const GradUnit& unit, std::int64_t count) {
        for (const UnitHolder& holder : unit.holders) {
            values_[2 * static_cast<std::size_t>(holder.rank)] += count;
            values_[2 * static_cast<std::size_t>(unit.owner) + 1] += count;
        }
    }

    std::int64_t most_;
    std::vector<std::int64_t> values_;
};

}  // namespace

GradientExchange::GradientExchange(const MpiSession& mpi, const Job& job, const Plan& plan,
                                   Backend& backend, std::int64_t at_once)
    : job_(job),
      plan_(plan),
      at_once_(at_once > 0 ? at_once : exchanged_at_once(plan)),
      rank_(mpi.rank()),
      ranks_(mpi.size()),
      exchange_(mpi) {
    const auto values = static_cast<std::size_t>(exchanged_at_once(plan));
    LORATRAIN_CHECK(at_once_ <= exchanged_at_once(plan), at_once_, " values at a time");
    if (const std::uint64_t bytes = exchange_bytes(plan)) {
        memory_ = backend.allocate(bytes, "exchange of gradients");
        own_ = memory_.as<float>();
    } else {
        host_memory_.resize(2 * values);
        own_ = host_memory_.data();
    }
    owned_ = own_ + values;
    all_numbers_.resize(own_numbers_.size() * static_cast<std::size_t>(ranks_));
}

const GradientExchange::Route& GradientExchange::route_of(AdapterId adapter) {
    const auto [known, fresh] = routes_.try_emplace(adapter);
    Route& route = known->second;
    if (!fresh) return route;
    route.units = grad_units(job_.adapter(adapter), adapter, plan_);
    ChunkRoom room(ranks_, at_once_);
    for (std::size_t u = 0; u < route.units.size(); ++u) {
        if (u == 0 || !room.take(route.units[u])) {
            route.chunks.push_back({u, u});
            room.clear();
            LORATRAIN_CHECK(room.take(route.units[u]), "a unit of ", route.units[u].count,
                            " values is too large to be exchanged");
        }
        route.chunks.back().end = u + 1;
    }
    return route;
}

void GradientExchange::begin(Own own) {
    Batch& batch = batches_.emplace_back(Batch{std::move(own)});
    batch.route = &route_of(batch.own.adapter);
    poll();
}

void GradientExchange::poll() {
    while (over_.size() < batches_.size() && go_on(batches_[over_.size()])) continue;
}

bool GradientExchange::over(std::int32_t batch) {
    LORATRAIN_CHECK(!batches_.empty() && batches_.front().own.batch == batch, "batch ", batch,
                    " is not the first one to be summed");
    poll();
    return !over_.empty();
}

GradientExchange::Sums GradientExchange::finish(std::int32_t batch,
                                                const std::function<void()>& meanwhile) {
    if (!over(batch)) {
        const activity::Waiting waiting;
        while (!over(batch)) {
            if (meanwhile) meanwhile();
            std::this_thread::sleep_for(between_looks_at_exchange);
        }
    }
    batches_.front().own.gradients.store();
    batches_.pop_front();
    const Sums sums = over_.front();
    over_.pop_front();
    return sums;
}

/// One step; false where others have to be waited for.
bool GradientExchange::go_on(Batch& batch) {
    Own& own = batch.own;
    switch (batch.phase) {
        case Phase::begun:
            if (!own.gradients.ready() || (own.loss && !own.loss->ready())) return false;
            begin_chunk(batch);
            return true;
        case Phase::to_owners:
            if (!exchange_.done()) return false;
            batch.squares += add_up(units_of(batch));
            exchange_.begin_all_to_all(owned(), from_holders_, this->own(), to_owners_);
            batch.phase = Phase::to_holders;
            return true;
        case Phase::to_holders:
            if (!exchange_.done()) return false;
            unpack(units_of(batch), own.gradients.sums());
            ++batch.chunk;
            begin_chunk(batch);
            return true;
        case Phase::gathering:
            if (!exchange_.done()) return false;
            over_.push_back(sums());
            batch.phase = Phase::over;
            return true;
        case Phase::over:
            break;
    }
    return false;
}

/// Or what comes behind the last one.
void GradientExchange::begin_chunk(Batch& batch) {
    if (batch.chunk == batch.route->chunks.size()) return begin_gathering(batch);
    const std::span<const GradUnit> units = units_of(batch);
    count(units);
    pack(units, batch.own.gradients.values());
    exchange_.begin_all_to_all(own(), to_owners_, owned(), from_holders_);
    batch.phase = Phase::to_owners;
}

void GradientExchange::begin_gathering(Batch& batch) {
    const auto* loss =
        static_cast<const double*>(batch.own.loss ? batch.own.loss->value() : nullptr);
    own_numbers_ = {batch.squares, loss == nullptr ? 0.0 : *loss};
    exchange_.begin_all_gather(own_numbers_, all_numbers_);
    batch.phase = Phase::gathering;
}

GradientExchange::Sums GradientExchange::sums() const {
    Sums sums;
    for (std::size_t i = 0; i < all_numbers_.size(); i += own_numbers_.size()) {
        sums.squares += all_numbers_[i];
        sums.loss += all_numbers_[i + 1];
    }
    return sums;
}

std::span<const GradUnit> GradientExchange::units_of(const Batch& batch) const {
    const Chunk& chunk = batch.route->chunks[batch.chunk];
    return std::span(batch.route->units).subspan(chunk.begin, chunk.end - chunk.begin);
}

std::span<float> GradientExchange::own() {
    return {own_, sum_of(to_owners_)};
}

std::span<float> GradientExchange::owned() {
    return {owned_, sum_of(from_holders_)};
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
}

void GradientExchange::pack(std::span<const GradUnit> units, std::span<const float> gradients) {
    std::vector<std::size_t> at = begins_of(to_owners_);
    for (const GradUnit& unit : units) {
        const UnitHolder* holder = holder_on(unit, rank_);
        if (holder == nullptr) continue;
        const std::vector<float> values = cut_out(
            holder->cut, gradients.subspan(static_cast<std::size_t>(holder->first),
                                           static_cast<std::size_t>(holder->cut.whole_count())));
        std::size_t& place = at[static_cast<std::size_t>(unit.owner)];
        std::copy(values.begin(), values.end(), own_ + place);
        place += values.size();
    }
}

/// Every holder's values of an owned unit become the sum; returns its squares.
double GradientExchange::add_up(std::span<const GradUnit> units) {
    std::vector<std::size_t> at = begins_of(from_holders_);
    double squares = 0.0;
    for (const GradUnit& unit : units) {
        if (unit.owner != rank_) continue;
        const auto count = static_cast<std::size_t>(unit.count);
        std::vector<float*> values;
        for (const UnitHolder& holder : unit.holders) {
            std::size_t& place = at[static_cast<std::size_t>(holder.rank)];
            values.push_back(owned_ + place);
            place += count;
        }
        float* sum = values.front();
        for (std::size_t h = 1; h < values.size(); ++h) {
            for (std::size_t i = 0; i < count; ++i) sum[i] += values[h][i];
        }
        for (std::size_t i = 0; i < count; ++i) squares += double{sum[i]} * double{sum[i]};
        for (std::size_t h = 1; h < values.size(); ++h) std::copy_n(sum, count, values[h]);
    }
    return squares;
}

void GradientExchange::unpack(std::span<const GradUnit> units, std::span<float> gradients) {
    std::vector<std::size_t> at = begins_of(to_owners_);
    for (const GradUnit& unit : units) {
        const UnitHolder* holder = holder_on(unit, rank_);
        if (holder == nullptr) continue;
        std::size_t& place = at[static_cast<std::size_t>(unit.owner)];
        const auto count = static_cast<std::size_t>(unit.count);
        paste(holder->cut, {own_ + place, count},
              gradients.subspan(static_cast<std::size_t>(holder->first),
                                static_cast<std::size_t>(holder->cut.whole_count())));
        place += count;
    }
}

}  // namespace loratrain
