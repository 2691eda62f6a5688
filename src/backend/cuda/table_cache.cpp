#include "backend/cuda/table_cache.h"

#include "backend/cuda/check.h"
#include "backend/cuda/counted_memory.h"
#include "backend/cuda/staging_ring.h"
#include "kernels/small_table.h"

namespace loratrain {

namespace {

constexpr std::size_t alignment = 16;

}  // namespace

TableCache::TableCache(cudaStream_t stream, StagingRing& transfers, std::size_t capacity,
                       MemoryUse* use)
    : stream_(stream), transfers_(transfers), capacity_(capacity), use_(use) {
    memory_ = static_cast<char*>(allocate_counted(2 * capacity_, use_));
    if (memory_ == nullptr) {
        throw Error(cat("out of GPU memory: LoRA tables need ", human_bytes(2 * capacity_)));
    }
}

TableCache::~TableCache() {
    free_counted(memory_, 2 * capacity_, use_);
}

char* TableCache::reserve(std::size_t bytes) {
    LORATRAIN_CHECK(bytes <= capacity_, "a table of ", bytes, " bytes in a cache of ", capacity_);
    const std::size_t size = (bytes + alignment - 1) / alignment * alignment;
    if (used_ + size > capacity_) {
        half_ = 1 - half_;
        used_ = 0;
        places_[half_].clear();
    }
    char* place = memory_ + half_ * capacity_ + used_;
    used_ += size;
    return place;
}

const void* TableCache::find(const void* source, std::size_t bytes) {
    if (bytes == 0) return memory_;
    const std::string_view text(static_cast<const char*>(source), bytes);
    for (const Places& places : places_) {
        const auto found = places.find(text);
        if (found != places.end()) return found->second;
    }
    char* place = reserve(bytes);
    if (bytes <= kernels::small_table_bytes) {
        CUDA_CHECK(kernels::store_small_table(stream_, place, source, bytes));
    } else {
        transfers_.upload(place, source, bytes);
    }
    places_[half_].emplace(text, place);
    return place;
}

}  // namespace loratrain
