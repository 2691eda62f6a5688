#include "backend/cuda/table_cache.h"

#include "backend/cuda/check.h"
#include "backend/cuda/growing_memory.h"
#include "backend/cuda/staging_ring.h"
#include "kernels/small_table.h"

namespace loratrain {

TableCache::TableCache(cudaStream_t stream, StagingRing& transfers, std::size_t capacity,
                       MemoryUse* use)
    : stream_(stream), transfers_(transfers), capacity_(capacity), use_(use), places_(capacity) {
    memory_ = static_cast<char*>(allocate_counted(capacity_, use_));
    if (memory_ == nullptr) {
        throw Error(cat("out of GPU memory: LoRA tables need ", human_bytes(capacity_)));
    }
}

TableCache::~TableCache() {
    free_counted(memory_, capacity_, use_);
}

const void* TableCache::place(const void* source, std::size_t bytes) {
    const auto [offset, is_new] = places_.find({static_cast<const char*>(source), bytes});
    char* target = memory_ + offset;
    if (!is_new) return target;
    if (bytes <= kernels::small_table_bytes) {
        CUDA_CHECK(kernels::store_small_table(stream_, target, source, bytes));
    } else {
        transfers_.upload(target, source, bytes);
    }
    return target;
}

}  // namespace loratrain
