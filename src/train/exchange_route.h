#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "adapter/grad_units.h"

namespace loratrain {

/// How the ranks exchange an adapter's gradients: its units, in chunks that are exchanged at a
/// time.
class ExchangeRoute {
  public:
    /// A chunk holds as many units as no rank sends, or receives, more than `at_once` values of.
    ExchangeRoute(std::vector<GradUnit> units, int ranks, std::int64_t at_once);

    std::size_t chunks() const { return ends_.size(); }
    std::span<const GradUnit> chunk(std::size_t number) const;

  private:
    std::vector<GradUnit> units_;
    std::vector<std::size_t> ends_;  ///< of the chunks
};

/// What rank `rank` sends, and receives, of the units of a chunk: a part for each rank, in rank
/// order, and in it the units in theirs.
struct ExchangeCounts {
    std::vector<int> to_owners;    ///< values for each rank, which adds them up
    std::vector<int> from_copies;  ///< values of each rank, which this one adds up

    ExchangeCounts(std::span<const GradUnit> units, int rank, int ranks);
};

/// Per rank, where its first value stands.
std::vector<std::int64_t> begins_of(const std::vector<int>& counts);

/// What the rank has of the unit; null = nothing.
const UnitCopy* copy_on(const GradUnit& unit, int rank);

/// Calls visit(unit, copy, place) for each unit of which the rank has a copy; place: where its
/// values stand among those for the owners.
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

/// Calls visit(unit, places) for each unit that the rank owns; places: where the values of each
/// copy stand among those from all copies.
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
