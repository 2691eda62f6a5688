#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/pages.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// Pages of ranks of one host that others of them read and write (base/pages.h).
class RankPages {
  public:
    struct Shared {
        std::unique_ptr<RankPages> pages;  ///< null on all ranks where any cannot share
        std::string refusal;               ///< why not, the same text on all ranks
    };
    /// `bytes` of this rank, zero at first; 0 = none. Maps those of the ranks `wanted`, each of
    /// which has some; its own are mapped anyway. Collective.
    static Shared connect(const MpiSession& mpi, std::size_t bytes, const std::vector<int>& wanted);

    /// Of one that was wanted, or of this rank.
    char* of(int rank) const { return pages_.at(rank)->data(); }
    std::size_t bytes(int rank) const { return pages_.at(rank)->bytes(); }
    /// Whose are mapped here.
    std::vector<int> ranks() const;

  private:
    std::map<int, std::unique_ptr<SharedPages>> pages_;
};

}  // namespace loratrain
