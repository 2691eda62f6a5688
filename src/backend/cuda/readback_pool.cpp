#include "backend/cuda/readback_pool.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "backend/cuda/check.h"

namespace loratrain {

namespace {

constexpr std::size_t smallest_slot = 64;
constexpr std::size_t chunk_bytes = 4096;

class PinnedBytes final : public Readback {
  public:
    PinnedBytes(ReadbackPool& pool, ReadbackPool::Slot* slot) : pool_(pool), slot_(slot) {}
    ~PinnedBytes() override { pool_.give_back(slot_); }
    PinnedBytes(const PinnedBytes&) = delete;
    PinnedBytes& operator=(const PinnedBytes&) = delete;

    bool ready() override {
        const cudaError_t status = cudaEventQuery(slot_->done);
        if (status == cudaErrorNotReady) {
            static_cast<void>(cudaGetLastError());
            return false;
        }
        CUDA_CHECK(status);
        return true;
    }
    const void* value() override {
        CUDA_CHECK(cudaEventSynchronize(slot_->done));
        return slot_->host;
    }

  private:
    ReadbackPool& pool_;
    ReadbackPool::Slot* slot_;
};

}  // namespace

ReadbackPool::~ReadbackPool() {
    for (const Slot& slot : slots_) cudaEventDestroy(slot.done);
    for (char* chunk : chunks_) cudaFreeHost(chunk);
}

std::unique_ptr<Readback> ReadbackPool::read(std::span<const ReadPart> parts) {
    const std::size_t bytes =
        std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                        [](std::size_t sum, const ReadPart& part) { return sum + part.bytes; });
    Slot* slot = take(bytes);
    auto readback = std::make_unique<PinnedBytes>(*this, slot);
    char* target = slot->host;
    for (const ReadPart& part : parts) {
        CUDA_CHECK(
            cudaMemcpyAsync(target, part.source, part.bytes, cudaMemcpyDeviceToHost, stream_));
        target += part.bytes;
    }
    CUDA_CHECK(cudaEventRecord(slot->done, stream_));
    return readback;
}

ReadbackPool::Slot* ReadbackPool::take(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, smallest_slot));
    std::vector<Slot*>& free = free_[size];
    if (free.empty()) add_slots(size);
    Slot* slot = free.back();
    free.pop_back();
    return slot;
}

void ReadbackPool::add_slots(std::size_t bytes) {
    const std::size_t count = std::max<std::size_t>(1, chunk_bytes / bytes);
    char* chunk = nullptr;
    CUDA_CHECK(cudaMallocHost(reinterpret_cast<void**>(&chunk), count * bytes));
    chunks_.push_back(chunk);
    for (std::size_t i = 0; i < count; ++i) {
        Slot slot{chunk + i * bytes, bytes, nullptr};
        CUDA_CHECK(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming));
        slots_.push_back(slot);
        free_[bytes].push_back(&slots_.back());
    }
}

}  // namespace loratrain
