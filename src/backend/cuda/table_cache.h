#pragma once

#include <cuda_runtime_api.h>

#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/table_places.h"

namespace loratrain {

class StagingRing;

/// Small host tables in device memory; equal tables are stored once. The layers of a model and the
/// microbatches of a job use the same few tables again and again.
class TableCache {
  public:
    /// `transfers`, of the same stream, carries tables that are too large for a kernel's arguments.
    /// Takes `capacity` bytes of device memory, counted in `use`.
    TableCache(cudaStream_t stream, StagingRing& transfers, std::size_t capacity, MemoryUse* use);
    ~TableCache();
    TableCache(const TableCache&) = delete;
    TableCache& operator=(const TableCache&) = delete;

    /// Device copies of all tables of one operator, aligned to 16 bytes. Throws Error if they
    /// exceed `capacity` bytes; LoRA's tables take 64 bytes for each slot of each target, 16 for
    /// each segment, 20 for each tile. Valid for work queued on `stream` before the next call.
    template <class... T>
    std::tuple<const T*...> find(const std::vector<T>&... tables) {
        places_.start_op((TablePlaces::size_of(tables.size() * sizeof(T)) + ...));
        return {static_cast<const T*>(place(tables.data(), tables.size() * sizeof(T)))...};
    }

  private:
    const void* place(const void* source, std::size_t bytes);

    cudaStream_t stream_;
    StagingRing& transfers_;
    std::size_t capacity_;
    MemoryUse* use_;
    char* memory_ = nullptr;
    TablePlaces places_;
};

}  // namespace loratrain
