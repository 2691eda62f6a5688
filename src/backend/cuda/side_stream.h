#pragma once

#include <cuda_runtime_api.h>

#include "backend/cuda/readback_pool.h"
#include "backend/side_stream.h"

namespace loratrain {

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

}  // namespace loratrain
