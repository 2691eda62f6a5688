#pragma once

#include <functional>
#include <span>

#include "comm/mpi_session.h"

namespace loratrain {

/// Exchanges of host memory among all ranks of a session. All ranks make the same calls in the same
/// order, construction and destruction included; a call returns when it is done on this rank.
class RankExchange {
  public:
    explicit RankExchange(const MpiSession& mpi);
    ~RankExchange();
    RankExchange(const RankExchange&) = delete;
    RankExchange& operator=(const RankExchange&) = delete;

    /// Called now and then while others are waited for; may be empty.
    using Meanwhile = std::function<void()>;

    /// `sent`: what goes to rank 0, then to rank 1, and so on, send_counts[rank] values each;
    /// `received` likewise by where it comes from.
    void all_to_all(std::span<const float> sent, std::span<const int> send_counts,
                    std::span<float> received, std::span<const int> receive_counts,
                    const Meanwhile& meanwhile);
    /// all = every rank's `own`, in rank order.
    void all_gather(std::span<const double> own, std::span<double> all, const Meanwhile& meanwhile);

  private:
    template <class Start>
    void wait(const Start& start, const Meanwhile& meanwhile);

    MPI_Comm comm_ = MPI_COMM_NULL;
    int size_ = 1;
};

}  // namespace loratrain
