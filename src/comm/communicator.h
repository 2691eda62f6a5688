#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "backend/rank_group.h"
#include "base/ids.h"
#include "comm/byte_copy.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// A transfer under way; waiting twice is harmless.
class Transfer {
  public:
    virtual ~Transfer() = default;
    /// Returns when the buffer may be used again (sender) or holds the data (receiver): for device
    /// communicators, work queued on the backend's stream afterwards sees it so. Calls `meanwhile`
    /// (may be empty) now and then as long as the host waits: a peer may need it to get here.
    virtual void wait(const std::function<void()>& meanwhile) = 0;
    void wait() { wait({}); }
};

/// Non-blocking point-to-point messages between stages, in backend memory: MPI for host memory,
/// NCCL for device memory. Messages of one channel between two ranks arrive in the order sent.
class Communicator {
  public:
    virtual ~Communicator() = default;
    virtual std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                           Channel channel) = 0;
    virtual std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                              Channel channel) = 0;
    /// Waits until all sends have left and the device has done what it was given, at most some
    /// seconds, and calls `meanwhile` (may be empty) now and then; receives go on. To be called
    /// before what waits for the whole device: that would wait, taking up no receive, for hosts of
    /// other ranks, of peers with sends under way and of lanes to sum with, which may be at the
    /// same.
    virtual void settle(const std::function<void()>& /*meanwhile*/) {}
    /// Takes up what has arrived, for others not to wait for it; to be called now and then where
    /// the host waits for anything else than a Transfer. Does not wait.
    virtual void progress() {}
    /// Memory of this rank that messages lie in.
    virtual std::size_t bytes() const { return 0; }
    /// Throws Error naming the link when one is known to have failed; does not wait.
    virtual void check() {}
};

/// Two ranks that exchange messages, the lower one first.
using RankPair = std::pair<int, int>;

/// NCCL where the backend has a stream and there is more than one rank, else MPI. Collective; all
/// ranks give the same `neighbours`, and the same bytes that messages between two of one host have
/// room for, each way. The threads of `backend`, which outlives it, copy messages in host memory.
std::unique_ptr<Communicator> make_communicator(const MpiSession& mpi,
                                                const std::vector<RankPair>& neighbours,
                                                std::size_t link_room, Backend& backend);
/// The same choice of a RankGroup (nccl_rank_group.h, mpi_rank_group.h) of the ranks that give the
/// same `color`.
std::unique_ptr<RankGroup> make_rank_group(const MpiSession& mpi, int color,
                                           const Backend& backend);

/// Communicator for host memory, over MPI; between neighbours on the same host over memory that
/// they share, where it can be had (host_link.h), copied by `copy`, or memcpy. Collective.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& mpi,
                                                    const std::vector<RankPair>& neighbours = {},
                                                    std::size_t link_room = 0,
                                                    const ByteCopy& copy = {});

}  // namespace loratrain
