#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

/// A ring of sectors of pinned host memory, through which copies to and from the device pass. A
/// sector is reused once the stream has passed the copies from it, so uploads do not wait for the
/// stream. For small tables each sector also has device memory.
class StagingRing {
  public:
    /// `with_tables`: upload_table() will be used. Device memory is counted in `use`.
    StagingRing(cudaStream_t stream, std::size_t sectors, std::size_t sector_bytes,
                bool with_tables, MemoryUse* use = nullptr);
    ~StagingRing();
    StagingRing(const StagingRing&) = delete;
    StagingRing& operator=(const StagingRing&) = delete;

    /// target[device] = source[host]; `source` may be changed after the call.
    void upload(void* target, const void* source, std::size_t bytes);
    /// target[host] = source[device]; waits for the stream.
    void download(void* target, const void* source, std::size_t bytes);
    /// A device copy of a table of at most sector_bytes. Valid for work queued before the ring has
    /// gone round once.
    const void* upload_table(const void* source, std::size_t bytes);

  private:
    struct Sector {
        char* host = nullptr;
        char* device = nullptr;
        cudaEvent_t done = nullptr;
        std::size_t used = 0;
    };

    /// Offset of `bytes` in the current sector, or in the next one once it is free.
    std::size_t reserve(std::size_t bytes);

    cudaStream_t stream_;
    std::size_t sector_bytes_;
    MemoryUse* use_;
    std::vector<Sector> sectors_;
    std::size_t current_ = 0;
};

}  // namespace loratrain
