#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/gemm_cublaslt.h"
#include "backend/cuda/growing_memory.h"
#include "backend/cuda/readback_pool.h"
#include "backend/cuda/staging_ring.h"
#include "backend/cuda/table_cache.h"
#include "backend/gpu_info.h"
#include "base/device_memory.h"
#include "kernels/architecture.h"

namespace loratrain {

namespace {

constexpr std::size_t transfer_sectors = 4;
constexpr std::size_t transfer_sector_bytes = std::size_t{8} << 20U;

}  // namespace

kernels::Matrix matrix_of(const TensorView& view) {
    return {view.data, view.dtype == DType::f32 ? kernels::Element::f32 : kernels::Element::bf16,
            view.rows, view.cols, view.ld};
}

CudaBackend::CudaBackend(int device, DType compute, const std::string& algorithm_file)
    : device_(device), compute_(compute) {
    CUDA_CHECK(cudaSetDevice(device_));
    describe_device();
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    transfers_ =
        std::make_unique<StagingRing>(stream_, transfer_sectors, transfer_sector_bytes, false);
    tables_ = std::make_unique<StagingRing>(stream_, device_memory::table_ring_sectors,
                                            device_memory::table_ring_sector, true, &memory_);
    lora_tables_ = std::make_unique<TableCache>(stream_, *transfers_,
                                                device_memory::lora_table_cache, &memory_);
    readbacks_ = std::make_unique<ReadbackPool>(stream_);
    gemm_workspace_ = allocate(device_memory::gemm_workspace, "GEMM workspace");
    gemm_ = std::make_unique<GemmCublasLt>(stream_, compute_, name_, gemm_workspace_, &memory_,
                                           algorithm_file);
    attention_ = std::make_unique<CudaAttention>(stream_, compute_, shared_limit_, &memory_);
}

void CudaBackend::describe_device() {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device_));
    name_ = properties.name;
    processors_ = properties.multiProcessorCount;
    const cudaError_t runs = kernels::check_architecture();
    if (runs != cudaSuccess) {
        GpuInfo gpu;
        gpu.name = name_;
        gpu.compute_capability = 10 * properties.major + properties.minor;
        refuse_architecture(gpu, cudaGetErrorString(runs));
    }
    shared_limit_ = shared_memory_limit(properties.sharedMemPerBlockOptin);
    if (compute_ == DType::bf16) {
        require_shared_memory(name_, static_cast<std::size_t>(shared_limit_),
                              kernels::least_shared_bytes);
    }
}

CudaBackend::~CudaBackend() {
    cudaStreamSynchronize(stream_);
    attention_.reset();
    gemm_.reset();
    workspace_ = Buffer();
    gemm_workspace_ = Buffer();
    lora_tables_.reset();
    readbacks_.reset();
    tables_.reset();
    transfers_.reset();
    cudaStreamDestroy(stream_);
}

std::string CudaBackend::description() const {
    return cat("cuda, ", name_, ", ", to_string(compute_), ", ", GemmCublasLt::library());
}

Buffer CudaBackend::allocate(std::size_t bytes, const char* what) {
    if (bytes == 0) return {};
    void* data = allocate_counted(bytes, &memory_);
    if (data == nullptr) {
        throw Error(cat("out of GPU memory: ", what, " needs ", human_bytes(bytes), " (", bytes,
                        " bytes), this rank holds ", human_bytes(memory_.current),
                        "; nvidia-smi shows which other process holds memory of this GPU"));
    }
    zero(data, bytes);
    return {this, data, bytes};
}

void CudaBackend::release(void* data, std::size_t bytes) {
    if (data == nullptr) return;
    cudaStreamSynchronize(stream_);
    free_counted(data, bytes, &memory_);
}

void CudaBackend::prepare_scratch(const ScratchSizes& sizes) {
    reserve_workspace(sizes.operators);
    gemm_->reserve_timing(sizes.gemm_timing);
    attention_->reserve(sizes);
}

void CudaBackend::before_stalls(const std::function<void()>& call) {
    gemm_->before_stalls(call);
}

FirstUses CudaBackend::first_uses() const {
    return gemm_->first_uses();
}

void CudaBackend::upload(void* target, const void* host_source, std::size_t bytes) {
    transfers_->upload(target, host_source, bytes);
}

void CudaBackend::download(void* host_target, const void* source, std::size_t bytes) {
    transfers_->download(host_target, source, bytes);
}

std::unique_ptr<Readback> CudaBackend::read_later(std::span<const ReadPart> parts) {
    return readbacks_->read(parts);
}

void CudaBackend::zero(void* target, std::size_t bytes) {
    if (bytes > 0) CUDA_CHECK(cudaMemsetAsync(target, 0, bytes, stream_));
}

void CudaBackend::synchronize() {
    CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void CudaBackend::require_compute(std::initializer_list<const TensorView*> views) const {
    for (const TensorView* view : views) {
        LORATRAIN_CHECK(view->dtype == compute_, "the CUDA backend computes in ",
                        to_string(compute_), ", got ", to_string(view->dtype));
    }
}

void* CudaBackend::reserve_workspace(std::size_t bytes) {
    if (bytes > workspace_.bytes()) {
        workspace_ = Buffer();
        workspace_ = allocate(bytes, "scratch of the CUDA operators");
    }
    return workspace_.data();
}

}  // namespace loratrain
