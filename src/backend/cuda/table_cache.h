#pragma once

#include <cuda_runtime_api.h>

#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/table_places.h"

namespace loratrain {

class StagingRing;

/// Small host tables in device memory, equal ones only once: the layers of a model and the
/// microbatches of a job ask for the same few again and again.
class TableCache {
  public:
    /// `transfers`, of the same stream, carries the tables that are too large for a kernel's
    /// arguments. Device memory: `capacity` bytes, counted in `use`.
    TableCache(cudaStream_t stream, StagingRing& transfers, std::size_t capacity, MemoryUse* use);
    ~TableCache();
    TableCache(const TableCache&) = delete;
    TableCache& operator=(const TableCache&) = delete;

    /// Device copies of all tables of one op, 16-byte aligned, together at most `capacity` bytes
    /// (Error): LoRA's take 64 bytes for each slot of each target, 16 for each segment, 20 for a
    /// tile. Only for what is queued on `stream` before the next call, which may overwrite them.
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
