#include "train/exchange_route.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace loratrain {

namespace {

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
        for (const UnitCopy& copy : unit.copies) {
            values_[2 * static_cast<std::size_t>(copy.rank)] += count;
            values_[2 * static_cast<std::size_t>(unit.owner) + 1] += count;
        }
    }

    std::int64_t most_;
    std::vector<std::int64_t> values_;
};

}  // namespace

ExchangeRoute::ExchangeRoute(std::vector<GradUnit> units, int ranks, std::int64_t at_once)
    : units_(std::move(units)) {
    ChunkRoom room(ranks, at_once);
    for (std::size_t u = 0; u < units_.size(); ++u) {
        if (u == 0 || !room.take(units_[u])) {
            ends_.push_back(u);
            room.clear();
            LORATRAIN_CHECK(room.take(units_[u]), "a unit of ", units_[u].count,
                            " values is too large to be exchanged");
        }
        ends_.back() = u + 1;
    }
}

std::span<const GradUnit> ExchangeRoute::chunk(std::size_t number) const {
    const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
    return std::span(units_).subspan(begin, ends_[number] - begin);
}

ExchangeCounts::ExchangeCounts(std::span<const GradUnit> units, int rank, int ranks)
    : to_owners(static_cast<std::size_t>(ranks)), from_copies(static_cast<std::size_t>(ranks)) {
    for (const GradUnit& unit : units) {
        const int values = static_cast<int>(unit.count);
        if (copy_on(unit, rank) != nullptr) {
            to_owners[static_cast<std::size_t>(unit.owner)] += values;
        }
        if (unit.owner != rank) continue;
        for (const UnitCopy& copy : unit.copies) {
            from_copies[static_cast<std::size_t>(copy.rank)] += values;
        }
    }
}

std::vector<std::int64_t> begins_of(const std::vector<int>& counts) {
    std::vector<std::int64_t> begins(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), begins.begin(), std::int64_t{0});
    return begins;
}

const UnitCopy* copy_on(const GradUnit& unit, int rank) {
    const auto found = std::find_if(unit.copies.begin(), unit.copies.end(),
                                    [&](const UnitCopy& h) { return h.rank == rank; });
    return found == unit.copies.end() ? nullptr : &*found;
}

}  // namespace loratrain
