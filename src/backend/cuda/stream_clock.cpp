#include "backend/readback.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

/// One event per point; events are kept for the next reading.
class EventClock final : public StreamClock {
  public:
    explicit EventClock(cudaStream_t stream) : stream_(stream) {}
    ~EventClock() override {
        for (cudaEvent_t event : events_) cudaEventDestroy(event);
    }
    EventClock(const EventClock&) = delete;
    EventClock& operator=(const EventClock&) = delete;

    void mark() override {
        if (used_ == events_.size()) {
            cudaEvent_t event = nullptr;
            CUDA_CHECK(cudaEventCreate(&event));
            events_.push_back(event);
        }
        CUDA_CHECK(cudaEventRecord(events_[used_++], stream_));
    }

    /// Sums the steps from point to point: the float milliseconds of a long time are too coarse.
    std::vector<double> read() override {
        if (used_ > 0) CUDA_CHECK(cudaEventSynchronize(events_[used_ - 1]));
        std::vector<double> seconds;
        double now = 0.0;
        for (std::size_t i = 0; i < used_; ++i) {
            float milliseconds = 0.0F;
            if (i > 0) {
                CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events_[i - 1], events_[i]));
            }
            now += static_cast<double>(milliseconds) * 1e-3;
            seconds.push_back(now);
        }
        used_ = 0;
        return seconds;
    }

  private:
    cudaStream_t stream_;
    std::vector<cudaEvent_t> events_;
    std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<StreamClock> make_event_clock(cudaStream_t stream) {
    return std::make_unique<EventClock>(stream);
}

std::unique_ptr<StreamClock> CudaBackend::make_clock() {
    return make_event_clock(stream_);
}

}  // namespace loratrain
