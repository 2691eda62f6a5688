#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/pages.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// Memory that ranks of one host share: between two ranks, or pages that several ranks read and
/// write.

/// Memory that two ranks share, zero at first. Once both have mapped it, it has no name, so nothing
/// stays behind however they end.
class SharedMemory {
  public:
    /// Null on both ranks if they cannot share so much memory: on different hosts, in separate
    /// containers, or with too little left. Both give the same `bytes`. Collective over this rank
    /// and `peer`.
    static std::unique_ptr<SharedMemory> connect(const MpiSession& mpi, int peer,
                                                 std::size_t bytes);

    SharedMemory(void* mapped, std::size_t bytes) : data_(mapped), bytes_(bytes) {}
    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    /// Address of the first byte, which begins a page.
    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

  private:
    void* data_;
    std::size_t bytes_;
};

/// Pages of several ranks, each rank's read and written by other ranks (SharedPages).
class RankPages {
  public:
    struct Shared {
        std::unique_ptr<RankPages> pages;  ///< null on all ranks if any rank cannot share
        std::string refusal;               ///< why not; the same text on all ranks
    };
    /// Makes `bytes` of this rank's pages, zero at first; 0 = none. Maps this rank's own pages and
    /// those of the ranks `wanted`, each of which must have some. Collective.
    static Shared connect(const MpiSession& mpi, std::size_t bytes, const std::vector<int>& wanted);

    /// Pages of a rank that is mapped here.
    char* of(int rank) const { return pages_.at(rank)->data(); }
    std::size_t bytes(int rank) const { return pages_.at(rank)->bytes(); }
    /// The ranks whose pages are mapped here.
    std::vector<int> ranks() const;

  private:
    std::map<int, std::unique_ptr<SharedPages>> pages_;
};

}  // namespace loratrain
