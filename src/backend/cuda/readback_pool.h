#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/readback.h"

namespace loratrain {

/// Pinned host memory and events for Readbacks, which do not stop the stream. Slots have sizes of
/// powers of two and are reused; there are as many as were ever in use at once.
class ReadbackPool {
  public:
    struct Slot {
        char* host = nullptr;
        std::size_t bytes = 0;
        cudaEvent_t done = nullptr;
    };

    explicit ReadbackPool(cudaStream_t stream) : stream_(stream) {}
    ~ReadbackPool();
    ReadbackPool(const ReadbackPool&) = delete;
    ReadbackPool& operator=(const ReadbackPool&) = delete;

    std::unique_ptr<Readback> read(std::span<const ReadPart> parts);
    void give_back(Slot* slot) { free_[slot->bytes].push_back(slot); }

  private:
    Slot* take(std::size_t bytes);
    void add_slots(std::size_t bytes);

    cudaStream_t stream_;
    std::vector<char*> chunks_;
    std::deque<Slot> slots_;
    std::map<std::size_t, std::vector<Slot*>> free_;  ///< by Slot::bytes
};

}  // namespace loratrain
