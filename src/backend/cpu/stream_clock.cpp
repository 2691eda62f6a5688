#include "backend/readback.h"

#include <chrono>

#include "backend/cpu/cpu_backend.h"

namespace loratrain {

namespace {

class HostClock final : public StreamClock {
  public:
    void mark() override { points_.push_back(std::chrono::steady_clock::now()); }

    std::vector<double> read() override {
        std::vector<double> seconds;
        for (const auto& point : points_) {
            seconds.push_back(std::chrono::duration<double>(point - points_.front()).count());
        }
        points_.clear();
        return seconds;
    }

  private:
    std::vector<std::chrono::steady_clock::time_point> points_;
};

}  // namespace

std::unique_ptr<StreamClock> CpuBackend::make_clock() {
    return std::make_unique<HostClock>();
}

}  // namespace loratrain
