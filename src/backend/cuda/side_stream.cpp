#include "backend/side_stream.h"

#include <cuda_runtime_api.h>

#include <vector>

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/readback_pool.h"
#include "kernels/exchange.h"

namespace loratrain {

namespace {

/// A stream of the highest priority on the current device.
class CudaSideStream final : public SideStream {
  public:
    CudaSideStream();
    ~CudaSideStream() override;
    CudaSideStream(const CudaSideStream&) = delete;
    CudaSideStream& operator=(const CudaSideStream&) = delete;

    void* native_stream() const override { return stream_; }
    void zero(void* target, std::size_t bytes) override;
    void copy(std::span<const CopyBlock> blocks) override;
    void add_parts(std::span<const AddParts> sums, double* squares, void* workspace) override;
    std::unique_ptr<Readback> read_later(std::span<const ReadPart> parts) override;

  private:
    cudaStream_t stream_ = nullptr;
    std::unique_ptr<ReadbackPool> reads_;
};

CudaSideStream::CudaSideStream() {
    int least = 0;
    int greatest = 0;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    reads_ = std::make_unique<ReadbackPool>(stream_);
}

CudaSideStream::~CudaSideStream() {
    reads_.reset();
    cudaStreamDestroy(stream_);
}

void CudaSideStream::zero(void* target, std::size_t bytes) {
    CUDA_CHECK(cudaMemsetAsync(target, 0, bytes, stream_));
}

void CudaSideStream::copy(std::span<const CopyBlock> blocks) {
    std::vector<kernels::BlockCopy> copies;
    copies.reserve(blocks.size());
    for (const CopyBlock& b : blocks) {
        copies.push_back({b.from, b.to, b.rows, b.cols, b.from_ld, b.to_ld});
    }
    CUDA_CHECK(kernels::copy_blocks(stream_, copies.data(), copies.size()));
}

void CudaSideStream::add_parts(std::span<const AddParts> sums, double* squares, void* workspace) {
    std::vector<kernels::PartsToAdd> all;
    all.reserve(sums.size());
    for (const AddParts& sum : sums) {
        all.push_back({sum.values, sum.places.data(), static_cast<std::int32_t>(sum.places.size()),
                       sum.count});
    }
    CUDA_CHECK(kernels::add_parts(stream_, all.data(), all.size(), squares,
                                  static_cast<double*>(workspace)));
}

std::unique_ptr<Readback> CudaSideStream::read_later(std::span<const ReadPart> parts) {
    return reads_->read(parts);
}

}  // namespace

std::unique_ptr<SideStream> CudaBackend::make_side_stream() {
    return std::make_unique<CudaSideStream>();
}

}  // namespace loratrain
