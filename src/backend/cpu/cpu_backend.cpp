#include "backend/cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"
#include "base/arithmetic.h"
#include "base/error.h"

namespace loratrain {

namespace {

constexpr std::size_t alignment = 64;

std::size_t padded(std::size_t bytes) {
    return round_up(bytes, alignment);
}

/// Memory of the CPU backend was read at once.
class CopiedBytes final : public Readback {
  public:
    explicit CopiedBytes(std::span<const ReadPart> parts) {
        for (const ReadPart& part : parts) {
            const auto* source = static_cast<const char*>(part.source);
            bytes_.insert(bytes_.end(), source, source + part.bytes);
        }
    }
    bool ready() override { return true; }
    const void* value() override { return bytes_.data(); }

  private:
    std::vector<char> bytes_;
};

}  // namespace

float* ThreadScratch::local() const {
    return data_ + omp_get_thread_num() * stride_;
}

void require_f32(std::initializer_list<const TensorView*> views) {
    for (const TensorView* view : views) {
        LORATRAIN_CHECK(view->dtype == DType::f32, "the CPU backend computes in fp32, got ",
                        to_string(view->dtype));
    }
}

CpuBackend::CpuBackend(int threads) : threads_(threads) {
    LORATRAIN_CHECK(threads >= 1, "number of threads is ", threads);
    prepare_gemm_library();
}

std::string CpuBackend::description() const {
    return cat("cpu, ", threads_, threads_ == 1 ? " thread, " : " threads, ", gemm_library());
}

Buffer CpuBackend::allocate(std::size_t bytes, const char* what) {
    if (bytes == 0) return {};
    void* data =
        bytes > SIZE_MAX - alignment ? nullptr : std::aligned_alloc(alignment, padded(bytes));
    if (data == nullptr) {
        throw Error(cat("out of memory: ", what, " needs ", human_bytes(bytes), " (", bytes,
                        " bytes), this rank holds ", human_bytes(memory_.current),
                        "; start fewer ranks on this host, or give the job more memory"));
    }
    memory_.current += bytes;
    memory_.peak = std::max(memory_.peak, memory_.current);
    zero(data, bytes);
    return {this, data, bytes};
}

void CpuBackend::release(void* data, std::size_t bytes) {
    if (data == nullptr) return;
    std::free(data);
    memory_.current -= bytes;
}

void CpuBackend::upload(void* target, const void* host_source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(target, host_source, bytes);
}

void CpuBackend::download(void* host_target, const void* source, std::size_t bytes) {
    if (bytes > 0) std::memcpy(host_target, source, bytes);
}

std::unique_ptr<Readback> CpuBackend::read_later(std::span<const ReadPart> parts) {
    return std::make_unique<CopiedBytes>(parts);
}

void CpuBackend::zero(void* target, std::size_t bytes) {
    constexpr std::size_t block = std::size_t{1} << 20U;
    parallel_for(threads_, static_cast<std::int64_t>(ceil_div(bytes, block)), [&](std::int64_t i) {
        const std::size_t begin = static_cast<std::size_t>(i) * block;
        std::memset(static_cast<char*>(target) + begin, 0, std::min(block, bytes - begin));
    });
}

ThreadScratch CpuBackend::reserve_scratch(std::int64_t floats_per_thread) {
    constexpr std::int64_t line = alignment / sizeof(float);
    const std::int64_t stride = round_up(floats_per_thread, line);
    const std::size_t bytes = static_cast<std::size_t>(stride * threads_) * sizeof(float);
    if (bytes > scratch_.bytes()) {
        scratch_ = Buffer();
        scratch_ = allocate(bytes, "scratch of the CPU operators");
    }
    return {scratch_.as<float>(), stride};
}

}  // namespace loratrain
