#include "backend/host_copies.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

namespace {

/// Small copies of the backend's own stream share the copy engine: they wait for one of these.
constexpr std::size_t bytes_at_once = std::size_t{64} << 20U;

class CudaHostCopies final : public HostCopies {
  public:
    CudaHostCopies(cudaStream_t computing, std::int32_t places)
        : computing_(computing), there_(static_cast<std::size_t>(places)) {
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        CUDA_CHECK(cudaEventCreateWithFlags(&computed_, cudaEventDisableTiming));
        for (cudaEvent_t& event : there_) {
            CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        }
    }

    ~CudaHostCopies() override {
        cudaStreamSynchronize(stream_);
        cudaStreamSynchronize(computing_);
        for (void* data : opened_) cudaIpcCloseMemHandle(data);
        for (void* data : pinned_) cudaHostUnregister(data);
        for (cudaEvent_t event : there_) cudaEventDestroy(event);
        cudaEventDestroy(computed_);
        cudaStreamDestroy(stream_);
    }

    CudaHostCopies(const CudaHostCopies&) = delete;
    CudaHostCopies& operator=(const CudaHostCopies&) = delete;

    void pin(void* data, std::size_t bytes) override {
        const cudaError_t status = cudaHostRegister(data, bytes, cudaHostRegisterDefault);
        if (status != cudaSuccess) {
            static_cast<void>(cudaGetLastError());
            throw Error(cat("cannot pin ", human_bytes(bytes),
                            " of host memory: ", cudaGetErrorString(status),
                            "; see ulimit -l, or use model.residency: all and parallel.offload: "
                            "none"));
        }
        pinned_.push_back(data);
    }

    void save(std::span<const HostCopy> copies) override {
        for (const HostCopy& copy : copies) queue(copy, cudaMemcpyDeviceToHost, computing_);
        CUDA_CHECK(cudaStreamSynchronize(computing_));
    }

    void load(std::int32_t place, std::span<const HostCopy> copies, StreamClock* clock) override {
        CUDA_CHECK(cudaEventRecord(computed_, computing_));
        CUDA_CHECK(cudaStreamWaitEvent(stream_, computed_));
        if (clock != nullptr) clock->mark();
        for (const HostCopy& copy : copies) queue(copy, cudaMemcpyDefault, stream_);
        if (clock != nullptr) clock->mark();
        CUDA_CHECK(cudaEventRecord(there_[static_cast<std::size_t>(place)], stream_));
    }

    void store(std::int32_t place, std::span<const HostCopy> copies, StreamClock* clock) override {
        CUDA_CHECK(cudaEventRecord(computed_, computing_));
        CUDA_CHECK(cudaStreamWaitEvent(stream_, computed_));
        if (clock != nullptr) clock->mark();
        for (const HostCopy& copy : copies) queue(copy, cudaMemcpyDeviceToHost, stream_);
        if (clock != nullptr) clock->mark();
        CUDA_CHECK(cudaEventRecord(there_[static_cast<std::size_t>(place)], stream_));
    }

    void await(std::int32_t place) override {
        CUDA_CHECK(cudaStreamWaitEvent(computing_, there_[static_cast<std::size_t>(place)]));
    }

    std::unique_ptr<StreamClock> make_clock() override { return make_event_clock(stream_); }

    std::string offer(void* data) override {
        cudaIpcMemHandle_t handle;
        check_opening(cudaIpcGetMemHandle(&handle, data), "cudaIpcGetMemHandle");
        return {reinterpret_cast<const char*>(&handle), sizeof handle};
    }

    void* open(const std::string& offer) override {
        cudaIpcMemHandle_t handle;
        LORATRAIN_CHECK(offer.size() == sizeof handle, offer.size(), " bytes of a handle");
        std::memcpy(&handle, offer.data(), sizeof handle);
        void* data = nullptr;
        check_opening(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess),
                      "cudaIpcOpenMemHandle");
        opened_.push_back(data);
        return data;
    }

    void close() override {
        CUDA_CHECK(cudaStreamSynchronize(stream_));
        for (void* data : opened_) CUDA_CHECK(cudaIpcCloseMemHandle(data));
        opened_.clear();
    }

  private:
    static void check_opening(cudaError_t status, const char* call) {
        if (status == cudaSuccess) return;
        static_cast<void>(cudaGetLastError());
        throw Error(cat(call, ": ", cudaGetErrorString(status)));
    }

    static void queue(const HostCopy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
        if (copy.rows == 1) return queue_bytes(copy, kind, stream);
        const std::size_t at_once = std::max<std::size_t>(1, bytes_at_once / copy.row_bytes);
        const bool down = kind != cudaMemcpyDeviceToHost;
        for (std::size_t row = 0; row < copy.rows; row += at_once) {
            const std::size_t rows = std::min(at_once, copy.rows - row);
            char* device = static_cast<char*>(copy.device) + row * copy.pitch;
            char* host = static_cast<char*>(copy.host) + row * copy.host_pitch();
            CUDA_CHECK(cudaMemcpy2DAsync(
                down ? device : host, down ? copy.pitch : copy.host_pitch(), down ? host : device,
                down ? copy.host_pitch() : copy.pitch, copy.row_bytes, rows, kind, stream));
        }
    }

    static void queue_bytes(const HostCopy& copy, cudaMemcpyKind kind, cudaStream_t stream) {
        const bool down = kind != cudaMemcpyDeviceToHost;
        for (std::size_t done = 0; done < copy.row_bytes; done += bytes_at_once) {
            const std::size_t bytes = std::min(bytes_at_once, copy.row_bytes - done);
            char* device = static_cast<char*>(copy.device) + done;
            char* host = static_cast<char*>(copy.host) + done;
            CUDA_CHECK(
                cudaMemcpyAsync(down ? device : host, down ? host : device, bytes, kind, stream));
        }
    }

    cudaStream_t computing_;
    cudaStream_t stream_ = nullptr;
    cudaEvent_t computed_ = nullptr;
    std::vector<cudaEvent_t> there_;
    std::vector<void*> pinned_;
    std::vector<void*> opened_;
};

}  // namespace

std::unique_ptr<HostCopies> CudaBackend::make_host_copies(std::int32_t places) {
    return std::make_unique<CudaHostCopies>(stream_, places);
}

}  // namespace loratrain
