#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "comm/mpi_session.h"
#include "comm/shared_memory.h"

namespace loratrain {

/// Lets a stream of this rank and one of another rank on the same host wait for each other without
/// occupying multiprocessors: each rank counts its meetings in shared host memory, which the front
/// ends of the GPUs watch. Only in programs built with NCCL.
class StreamFlags {
  public:
    /// Null on both ranks without SharedMemory, or with a driver or GPU that cannot wait in this
    /// way. Synchronises `stream`, which must be idle. Collective over this rank and `peer`.
    static std::unique_ptr<StreamFlags> connect(const MpiSession& mpi, int peer,
                                                cudaStream_t stream);

    /// No stream may still have a meeting ahead of it. Not collective.
    ~StreamFlags();
    StreamFlags(const StreamFlags&) = delete;
    StreamFlags& operator=(const StreamFlags&) = delete;

    /// Makes work queued on `stream` afterwards start only when the peer's stream has reached its
    /// meeting of the same number, counted from connect(). Returns at once; throws Error if CUDA
    /// reports one.
    void meet(cudaStream_t stream);

  private:
    StreamFlags(std::unique_ptr<SharedMemory> page, bool first);
    /// Tries both operations without the peer.
    bool works(cudaStream_t stream);

    std::unique_ptr<SharedMemory> page_;
    bool registered_ = false;
    std::uint32_t* counters_ = nullptr;  ///< the page's address on the GPU; null = not mapped
    std::size_t mine_;    ///< index of the counter of meetings that this rank's stream has reached
    std::size_t theirs_;  ///< index of the counter of the peer's stream
    std::uint32_t count_ = 0;
};

}  // namespace loratrain
