#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/mpi_session.h"
#include "comm/shared_memory.h"

namespace loratrain {

/// Lets a stream of this rank and one of another rank of the same host wait for each other in the
/// front ends of their GPUs, which takes no multiprocessor: each rank counts its meetings in shared
/// host memory. Only in programs built with NCCL.
class StreamFlags {
  public:
    /// Null on both ranks where there can be none: no SharedMemory, or a driver or GPU that cannot
    /// wait so. Waits for `stream`, which must be idle. Collective over this rank and `peer`.
    static std::unique_ptr<StreamFlags> connect(const MpiSession& mpi, int peer,
                                                cudaStream_t stream);

    /// No stream may still have a meeting ahead of it. Not collective.
    ~StreamFlags();
    StreamFlags(const StreamFlags&) = delete;
    StreamFlags& operator=(const StreamFlags&) = delete;

    /// What is queued on `stream` afterwards starts once the peer's stream has come to the meeting
    /// of the same number, counted from connect(). Returns at once; throws Error when CUDA
    /// reports one.
    void meet(cudaStream_t stream);

  private:
    StreamFlags(std::unique_ptr<SharedMemory> page, bool first);
    /// Tries both operations without need of the peer.
    bool works(cudaStream_t stream);

    std::unique_ptr<SharedMemory> page_;
    bool registered_ = false;
    std::uint32_t* counters_ = nullptr;  ///< the page as the GPU sees it; null = it does not
    std::size_t mine_;    ///< index of the meetings that this rank's stream has come to
    std::size_t theirs_;  ///< index of those of the peer's
    std::uint32_t count_ = 0;
};

}  // namespace loratrain
