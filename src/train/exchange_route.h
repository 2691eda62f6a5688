#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "adapter/grad_units.h"

namespace loratrain {

/// Route of an adapter's gradients between ranks: its units, cut into chunks. One chunk is
/// exchanged at a time.
class ExchangeRoute {
  public:
    /// A chunk holds as many units as fit: no rank sends or receives more than `at_once` values.
    ExchangeRoute(std::vector<GradUnit> units, int ranks, std::int64_t at_once);

    std::size_t chunks() const { return ends_.size(); }
    std::span<const GradUnit> chunk(std::size_t number) const;

  private:
    std::vector<GradUnit> units_;
    std::vector<std::size_t> ends_;  ///< per chunk: behind its last unit
};

/// What `rank` sends and receives in a chunk: one part per rank, in rank order; in each part the
/// units in their order.
struct ExchangeCounts {
    std::vector<int> to_owners;    ///< per rank: values that it gets and adds up
    std::vector<int> from_copies;  ///< per rank: values that this rank gets and adds up

    ExchangeCounts(std::span<const GradUnit> units, int rank, int ranks);
};

/// Per rank: the place of its first value.
std::vector<std::int64_t> begins_of(const std::vector<int>& counts);

/// The rank's copy of the unit; null = it has none.
const UnitCopy* copy_on(const GradUnit& unit, int rank);

/// Calls visit(unit, copy, place) for each unit of which the rank has a copy. place: of the copy's
/// first value among the values that the rank sends to owners.
template <class Visit>
void for_each_copy(std::span<const GradUnit> units, int rank, const std::vector<int>& to_owners,
                   const Visit& visit) {
    std::vector<std::int64_t> at = begins_of(to_owners);
    for (const GradUnit& unit : units) {
        const UnitCopy* copy = copy_on(unit, rank);
        if (copy == nullptr) continue;
        std::int64_t& place = at[static_cast<std::size_t>(unit.owner)];
        visit(unit, *copy, place);
        place += unit.count;
    }
}

/// Calls visit(unit, places) for each unit that the rank owns. places: per copy, of its first value
/// among the values that the rank receives.
template <class Visit>
void for_each_owned(std::span<const GradUnit> units, int rank, const std::vector<int>& from_copies,
                    const Visit& visit) {
    std::vector<std::int64_t> at = begins_of(from_copies);
    for (const GradUnit& unit : units) {
        if (unit.owner != rank) continue;
        std::vector<std::int64_t> places;
        for (const UnitCopy& copy : unit.copies) {
            std::int64_t& place = at[static_cast<std::size_t>(copy.rank)];
            places.push_back(place);
            place += unit.count;
        }
        visit(unit, places);
    }
}

}  // namespace loratrain
