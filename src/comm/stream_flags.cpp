#ifdef LORATRAIN_WITH_NCCL

#include "comm/stream_flags.h"

#include <cudaTypedefs.h>

#include <atomic>
#include <utility>

#include "base/error.h"
#include "comm/tags.h"

namespace loratrain {

namespace {

/// Counters lie two cache lines apart, since processors fetch lines in pairs.
constexpr std::size_t counter_distance = 256 / sizeof(std::uint32_t);
constexpr std::size_t page_bytes = 4096;

/// A function of the driver by its name; null if the driver lacks it. The program does not link the
/// driver, so that it starts without one.
void* driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    constexpr unsigned int cuda_11_7 = 11070;
    const cudaError_t code =
        cudaGetDriverEntryPointByVersion(name, &function, cuda_11_7, cudaEnableDefault, &found);
#else
    const cudaError_t code = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    return code == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

struct DriverFunctions {
    PFN_cuStreamWriteValue32_v11070 write =
        reinterpret_cast<PFN_cuStreamWriteValue32_v11070>(driver_function("cuStreamWriteValue32"));
    PFN_cuStreamWaitValue32_v11070 wait =
        reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(driver_function("cuStreamWaitValue32"));
};

const DriverFunctions& driver() {
    static const DriverFunctions functions;
    return functions;
}

CUresult write(cudaStream_t stream, std::uint32_t* counter, std::uint32_t value) {
    return driver().write(stream, reinterpret_cast<CUdeviceptr>(counter), value,
                          CU_STREAM_WRITE_VALUE_DEFAULT);
}

/// Until the counter is at `value` or, in the order of numbers that wrap around, past it.
CUresult wait_until_at(cudaStream_t stream, std::uint32_t* counter, std::uint32_t value) {
    return driver().wait(stream, reinterpret_cast<CUdeviceptr>(counter), value,
                         CU_STREAM_WAIT_VALUE_GEQ);
}

void check(CUresult code, const char* what) {
    if (code != CUDA_SUCCESS) throw Error(cat(what, ": error ", int{code}, " of the CUDA driver"));
}

bool both(const MpiSession& mpi, int peer, bool mine) {
    const int sent = mine ? 1 : 0;
    int theirs = 0;
    MPI_CHECK(MPI_Sendrecv(&sent, 1, MPI_INT, peer, tags::flags_work, &theirs, 1, MPI_INT, peer,
                           tags::flags_work, mpi.comm(), MPI_STATUS_IGNORE));
    return mine && theirs != 0;
}

}  // namespace

std::unique_ptr<StreamFlags> StreamFlags::connect(const MpiSession& mpi, int peer,
                                                  cudaStream_t stream) {
    std::unique_ptr<SharedMemory> page = SharedMemory::connect(mpi, peer, page_bytes);
    if (!page) return nullptr;
    std::unique_ptr<StreamFlags> flags(new StreamFlags(std::move(page), mpi.rank() < peer));
    return both(mpi, peer, flags->works(stream)) ? std::move(flags) : nullptr;
}

StreamFlags::StreamFlags(std::unique_ptr<SharedMemory> page, bool first)
    : page_(std::move(page)),
      mine_(first ? 0 : counter_distance),
      theirs_(first ? counter_distance : 0) {
    registered_ =
        cudaHostRegister(page_->data(), page_->bytes(),
                         cudaHostRegisterPortable | cudaHostRegisterMapped) == cudaSuccess;
    void* counters = nullptr;
    if (registered_ && cudaHostGetDevicePointer(&counters, page_->data(), 0) == cudaSuccess) {
        counters_ = static_cast<std::uint32_t*>(counters);
    }
    static_cast<void>(cudaGetLastError());
}

StreamFlags::~StreamFlags() {
    if (registered_) cudaHostUnregister(page_->data());
}

bool StreamFlags::works(cudaStream_t stream) {
    if (counters_ == nullptr || driver().write == nullptr || driver().wait == nullptr) return false;
    ++count_;
    const bool done = write(stream, counters_ + mine_, count_) == CUDA_SUCCESS &&
                      wait_until_at(stream, counters_ + mine_, 0) == CUDA_SUCCESS &&
                      cudaStreamSynchronize(stream) == cudaSuccess;
    auto* on_host = static_cast<std::uint32_t*>(page_->data()) + mine_;
    return done && std::atomic_ref<std::uint32_t>(*on_host).load() == count_;
}

void StreamFlags::meet(cudaStream_t stream) {
    ++count_;
    check(write(stream, counters_ + mine_, count_), "cuStreamWriteValue32");
    check(wait_until_at(stream, counters_ + theirs_, count_), "cuStreamWaitValue32");
}

}  // namespace loratrain

#endif
