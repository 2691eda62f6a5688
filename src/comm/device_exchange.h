#pragma once

#include <memory>
#include <span>

#include "comm/mpi_session.h"

namespace loratrain {

/// Exchanges of device memory among all ranks of a session, queued on one stream.
class DeviceExchange {
  public:
    virtual ~DeviceExchange() = default;
    /// `sent`: what goes to rank 0, then to rank 1, and so on, send_counts[rank] values each;
    /// `received` likewise by where it comes from. Returns when queued; all ranks queue the same
    /// ones in the same order, and soon: until all have, some multiprocessors of the others wait.
    virtual void all_to_all(const float* sent, std::span<const int> send_counts, float* received,
                            std::span<const int> receive_counts) = 0;
    /// Throws Error where the connection to others has failed.
    virtual void check_peers() const = 0;
};

/// Over NCCL, on `stream` (a cudaStream_t of the rank's device), which outlives it. The constructor
/// has all ranks connect to each other, for which NCCL blocks the host. Collective. Null where the
/// program was built without NCCL.
std::unique_ptr<DeviceExchange> make_nccl_exchange(const MpiSession& mpi, void* stream);

}  // namespace loratrain
