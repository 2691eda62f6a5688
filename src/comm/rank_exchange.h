#pragma once

#include <span>
#include <vector>

#include "comm/mpi_session.h"

namespace loratrain {

/// Exchanges of host memory among all ranks of a session, one after the other: each begins, and is
/// then asked for until it is done. All ranks begin the same ones in the same order; construction
/// and destruction are collective too.
class RankExchange {
  public:
    explicit RankExchange(const MpiSession& mpi);
    ~RankExchange();
    RankExchange(const RankExchange&) = delete;
    RankExchange& operator=(const RankExchange&) = delete;

    /// `sent`: what goes to rank 0, then to rank 1, and so on, send_counts[rank] values each;
    /// `received` likewise by where it comes from. Memory and counts stay as they are until it is
    /// done.
    void begin_all_to_all(std::span<const float> sent, std::span<const int> send_counts,
                          std::span<float> received, std::span<const int> receive_counts);
    /// all = every rank's `own`, in rank order.
    void begin_all_gather(std::span<const double> own, std::span<double> all);
    /// Whether what was begun is over on this rank; does not wait, and goes on only in here.
    bool done();

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    int size_ = 1;
    MPI_Request under_way_ = MPI_REQUEST_NULL;
    std::vector<int> send_places_;
    std::vector<int> receive_places_;
};

}  // namespace loratrain
