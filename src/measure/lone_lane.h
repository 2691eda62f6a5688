#pragma once

#include "backend/backend.h"
#include "backend/rank_group.h"

namespace loratrain {

/// Lane 0 of `size` lanes, computing alone for timing: a sum is its own part, and a gather repeats
/// its own part for the missing lanes. The backend outlives it.
class LoneLane final : public RankGroup {
  public:
    LoneLane(std::int32_t size, Backend& backend) : size_(size), backend_(backend) {}

    std::int32_t index() const override { return 0; }
    std::int32_t size() const override { return size_; }
    void all_reduce(const TensorView& /*values*/) override {}
    void all_gather(const void* own, std::size_t bytes, void* all) override {
        const auto view = [bytes](void* data) {
            return matrix(data, DType::f32, 1, static_cast<std::int64_t>(bytes / sizeof(float)));
        };
        const TensorView from = view(const_cast<void*>(own));  // NOLINT(*-const-cast)
        for (std::int32_t lane = 0; lane < size_; ++lane) {
            void* to = static_cast<char*>(all) + static_cast<std::size_t>(lane) * bytes;
            if (to != own) backend_.copy({view(to), from});
        }
    }

  private:
    std::int32_t size_;
    Backend& backend_;
};

}  // namespace loratrain
