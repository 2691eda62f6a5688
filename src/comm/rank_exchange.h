#pragma once

#include <memory>
#include <span>
#include <vector>

#include "comm/mpi_session.h"

namespace loratrain {

/// Exchanges among all ranks of a session: host memory over MPI, device memory over NCCL. All ranks
/// start the same exchanges in the same order.

/// Exchanges of host memory, one at a time: a call begins one, and done() is polled until it is
/// over. Construction and destruction are collective.
class RankExchange {
  public:
    explicit RankExchange(const MpiSession& mpi);
    ~RankExchange();
    RankExchange(const RankExchange&) = delete;
    RankExchange& operator=(const RankExchange&) = delete;

    /// `sent`: send_counts[0] values for rank 0, then send_counts[1] values for rank 1, and so on;
    /// `received`: receive_counts[0] values from rank 0, and so on. Memory and counts must not
    /// change until done().
    void begin_all_to_all(std::span<const float> sent, std::span<const int> send_counts,
                          std::span<float> received, std::span<const int> receive_counts);
    /// all = every rank's `own`, in rank order.
    void begin_all_gather(std::span<const double> own, std::span<double> all);
    /// True if the exchange is over on this rank. Does not wait; the exchange advances only in
    /// here.
    bool done();

  private:
    MPI_Comm comm_ = MPI_COMM_NULL;
    int size_ = 1;
    MPI_Request under_way_ = MPI_REQUEST_NULL;
    std::vector<int> send_places_;
    std::vector<int> receive_places_;
};

/// Exchanges of device memory, queued on one stream.
class DeviceExchange {
  public:
    virtual ~DeviceExchange() = default;
    /// Layout of values as RankExchange::begin_all_to_all(). Returns when the exchange is queued.
    /// All ranks queue it soon after each other: until the last has, multiprocessors of the others
    /// wait.
    virtual void all_to_all(const float* sent, std::span<const int> send_counts, float* received,
                            std::span<const int> receive_counts) = 0;
    /// Throws Error if the connection to another rank has failed.
    virtual void check_peers() const = 0;
};

/// A DeviceExchange over NCCL on `stream` (a cudaStream_t of the rank's device), which outlives it.
/// All ranks connect to each other at once, for which NCCL blocks the host. Collective. Null in a
/// program built without NCCL.
std::unique_ptr<DeviceExchange> make_nccl_exchange(const MpiSession& mpi, void* stream);

}  // namespace loratrain
