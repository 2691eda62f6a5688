#include "backend/cuda/staging_ring.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/check.h"
#include "backend/cuda/growing_memory.h"
#include "base/arithmetic.h"
#include "kernels/small_table.h"

namespace loratrain {

namespace {

constexpr std::size_t alignment = 256;

}  // namespace

StagingRing::StagingRing(cudaStream_t stream, std::size_t sectors, std::size_t sector_bytes,
                         bool with_tables, MemoryUse* use)
    : stream_(stream), sector_bytes_(sector_bytes), use_(use), sectors_(sectors) {
    for (Sector& sector : sectors_) {
        CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&sector.host), sector_bytes));
        if (with_tables) {
            sector.device = static_cast<char*>(allocate_counted(sector_bytes, use_));
            if (sector.device == nullptr) throw Error("out of GPU memory: tables of the operators");
        }
        CUDA_CHECK(cudaEventCreateWithFlags(&sector.done, cudaEventDisableTiming));
    }
}

StagingRing::~StagingRing() {
    for (const Sector& sector : sectors_) {
        if (sector.done != nullptr) cudaEventDestroy(sector.done);
        free_counted(sector.device, sector_bytes_, use_);
        cudaFreeHost(sector.host);
    }
}

std::size_t StagingRing::reserve(std::size_t bytes) {
    LORATRAIN_CHECK(bytes <= sector_bytes_, "a table of ", bytes, " bytes in sectors of ",
                    sector_bytes_);
    if (sectors_[current_].used + bytes > sector_bytes_) {
        CUDA_CHECK(cudaEventRecord(sectors_[current_].done, stream_));
        current_ = (current_ + 1) % sectors_.size();
        CUDA_CHECK(cudaEventSynchronize(sectors_[current_].done));
        sectors_[current_].used = 0;
    }
    const std::size_t offset = sectors_[current_].used;
    sectors_[current_].used += round_up(bytes, alignment);
    return offset;
}

void StagingRing::upload(void* target, const void* source, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t part = std::min(sector_bytes_, bytes - done);
        const std::size_t offset = reserve(part);
        char* pinned = sectors_[current_].host + offset;
        std::memcpy(pinned, static_cast<const char*>(source) + done, part);
        CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(target) + done, pinned, part,
                                   cudaMemcpyHostToDevice, stream_));
        done += part;
    }
}

void StagingRing::download(void* target, const void* source, std::size_t bytes) {
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t part = std::min(sector_bytes_, bytes - done);
        const std::size_t offset = reserve(part);
        const char* pinned = sectors_[current_].host + offset;
        CUDA_CHECK(cudaMemcpyAsync(sectors_[current_].host + offset,
                                   static_cast<const char*>(source) + done, part,
                                   cudaMemcpyDeviceToHost, stream_));
        CUDA_CHECK(cudaStreamSynchronize(stream_));
        std::memcpy(static_cast<char*>(target) + done, pinned, part);
        done += part;
    }
}

const void* StagingRing::upload_table(const void* source, std::size_t bytes) {
    const std::size_t offset = reserve(bytes);
    const Sector& sector = sectors_[current_];
    if (bytes <= kernels::small_table_bytes) {
        CUDA_CHECK(kernels::store_small_table(stream_, sector.device + offset, source, bytes));
        return sector.device + offset;
    }
    std::memcpy(sector.host + offset, source, bytes);
    CUDA_CHECK(cudaMemcpyAsync(sector.device + offset, sector.host + offset, bytes,
                               cudaMemcpyHostToDevice, stream_));
    return sector.device + offset;
}

}  // namespace loratrain
