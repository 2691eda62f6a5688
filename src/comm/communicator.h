#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/ids.h"
#include "comm/byte_ring.h"
#include "comm/mpi_session.h"

namespace loratrain {

/// Messages of the pipeline between stages, in the memory of a backend: MPI for host memory, NCCL
/// for device memory.

/// A message under way; waiting twice is harmless.
class Transfer {
  public:
    virtual ~Transfer() = default;
    /// Returns when the buffer may be used again (sender) or holds the data (receiver). For device
    /// memory that holds for work queued on the backend's stream afterwards. While the host waits,
    /// it calls `meanwhile` (may be empty) now and then, which the peer may need to go on.
    virtual void wait(const std::function<void()>& meanwhile) = 0;
    void wait() { wait({}); }
};

/// Non-blocking messages between two ranks. Messages of one channel between two ranks arrive in the
/// order in which they were sent.
class Communicator {
  public:
    virtual ~Communicator() = default;
    virtual std::unique_ptr<Transfer> send(const void* data, std::size_t bytes, int target,
                                           Channel channel) = 0;
    virtual std::unique_ptr<Transfer> receive(void* data, std::size_t bytes, int source,
                                              Channel channel) = 0;
    /// Waits until all sends have left and the device has done its queued work, at most some
    /// seconds; receives go on. Calls `meanwhile` (may be empty) now and then. Call it before
    /// anything that waits for the whole device: such a wait accepts no messages, and the device
    /// may wait for hosts of other ranks (peers with sends under way, lanes to sum with) that wait
    /// for this rank in the same way.
    virtual void settle(const std::function<void()>& /*meanwhile*/) {}
    /// Accepts messages that have arrived, so that other ranks need not wait. Call it now and then
    /// where the host waits for anything other than a Transfer. Does not wait.
    virtual void progress() {}
    /// Bytes of this rank's memory that hold messages.
    virtual std::size_t bytes() const { return 0; }
    /// Throws Error naming the link if one is known to have failed; does not wait.
    virtual void check() {}
};

/// Two ranks that exchange messages, the lower rank first.
using RankPair = std::pair<int, int>;

/// make_nccl_communicator() if the backend has a stream and there is more than one rank, else
/// make_mpi_communicator(). `backend`, which outlives the communicator, copies messages in host
/// memory with its threads. Collective; all ranks give the same `neighbours` and `link_room`.
std::unique_ptr<Communicator> make_communicator(const MpiSession& mpi,
                                                const std::vector<RankPair>& neighbours,
                                                std::size_t link_room, Backend& backend);

/// Communicator for host memory, over MPI. Neighbours on one host exchange messages through memory
/// that they share (host_link.h) if it can be had: `link_room` bytes each way, filled by `copy`
/// ({} = memcpy). Collective.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiSession& mpi,
                                                    const std::vector<RankPair>& neighbours = {},
                                                    std::size_t link_room = 0,
                                                    const ByteCopy& copy = {});

/// Communicator for device memory, over NCCL. Every channel between two neighbours is an NCCL
/// communicator of two ranks with a stream of its own, so messages overlap with computation and
/// channels cannot block each other. Events order transfers against `compute_stream`: a send waits
/// for the work queued before it; Transfer::wait() makes later work wait for the transfer.
///
/// Between ranks of one host a message of 4 MiB or more starts only when the streams of both ends
/// have reached it (StreamFlags); otherwise the end that comes first waits in a kernel. In both
/// cases a transfer ends only after the peer's host has queued the other end. Deadlocks that follow
/// from this, and what prevents them:
///   - A call that synchronises a device (first use of a kernel, growing memory) would wait for
///     receives queued there. So a receive is queued on the GPU only after the sender's send is
///     queued, which an empty MPI message reports.
///   - A send larger than NCCL's buffers ends only once the receiver's host has queued the receive,
///     which happens in send(), receive(), settle() and Transfer::wait(). Two ranks that
///     synchronise their devices at once, each with such a send to the other, would wait for ever.
///     So settle() precedes the first use of code, and nothing is allocated or freed between
///     messages (plan/memory/engine_memory.h).
///   - A lane may have yet to queue the sum that another lane's device is executing. So settle()
///     waits for the compute stream too.
/// Collective; all ranks give the same `neighbours`, and links are made in that order. Throws
/// InputError in a program built without NCCL.
std::unique_ptr<Communicator> make_nccl_communicator(const MpiSession& mpi,
                                                     const std::vector<RankPair>& neighbours,
                                                     void* compute_stream);

/// "2.27.3", of the NCCL library that is loaded; "" in a program built without NCCL.
std::string nccl_version();

}  // namespace loratrain
