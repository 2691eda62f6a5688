#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"

namespace loratrain {

class StagingRing;

/// Small host tables in device memory, equal ones only once: the layers of a model and the
/// microbatches of a job ask for the same few again and again. A table stays in place at least
/// until `capacity` bytes of other tables have been stored after it.
class TableCache {
  public:
    /// `transfers` carries the tables that are too large for a kernel's arguments. Device memory:
    /// 2 * capacity bytes, counted in `use`.
    TableCache(cudaStream_t stream, StagingRing& transfers, std::size_t capacity, MemoryUse* use);
    ~TableCache();
    TableCache(const TableCache&) = delete;
    TableCache& operator=(const TableCache&) = delete;

    /// Device address of a copy of `bytes` bytes, 16-byte aligned; ops queued afterwards see it.
    /// bytes <= capacity.
    const void* find(const void* source, std::size_t bytes);

    template <class T>
    const T* find(const std::vector<T>& values) {
        return static_cast<const T*>(find(values.data(), values.size() * sizeof(T)));
    }

  private:
    struct TextHash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const {
            return std::hash<std::string_view>{}(text);
        }
    };
    using Places = std::unordered_map<std::string, char*, TextHash, std::equal_to<>>;

    char* reserve(std::size_t bytes);

    cudaStream_t stream_;
    StagingRing& transfers_;
    std::size_t capacity_;
    MemoryUse* use_;
    char* memory_ = nullptr;
    std::size_t used_ = 0;
    std::size_t half_ = 0;  ///< of memory_, being filled; the other one is still valid
    std::array<Places, 2> places_;
};

}  // namespace loratrain
