#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "backend/cuda/attention.h"
#include "backend/cuda/check.h"
#include "backend/cuda/growing_memory.h"
#include "base/device_memory.h"

// Attention alone, forward and backward: TFLOP/s where a causal score counts half, backward 2.5
// times the forward. Times are medians of single calls.
// bench_attention [HEADS KV_HEADS HEAD_DIM]   32 query and 8 key-value heads of 128

namespace loratrain {
namespace {

struct HeadShape {
    std::int64_t heads = 32;
    std::int64_t kv_heads = 8;
    std::int64_t head_dim = 128;
};

constexpr int repeats = 15;

class GpuRows {
  public:
    GpuRows(std::int64_t rows, std::int64_t cols, std::uint64_t seed)
        : view_{nullptr, DType::bf16, rows, cols, cols} {
        std::vector<BFloat16> host(static_cast<std::size_t>(rows * cols));
        std::uint32_t state = 2 * static_cast<std::uint32_t>(seed) + 1;
        for (BFloat16& value : host) {
            state = state * 1664525U + 1013904223U;
            value = to_bfloat16(static_cast<float>(state >> 8U) * 0x1p-23F - 1.0F);
        }
        view_.data = memory_.reserve(host.size() * sizeof(BFloat16), "benchmark matrix");
        CUDA_CHECK(cudaMemcpy(view_.data, host.data(), host.size() * sizeof(BFloat16),
                              cudaMemcpyHostToDevice));
    }
    const TensorView& view() const { return view_; }

  private:
    TensorView view_;
    GrowingMemory memory_;
};

double median_seconds(const std::function<void()>& run) {
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    CUDA_CHECK(cudaEventCreate(&begin));
    CUDA_CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < repeats + 3; ++i) {
        CUDA_CHECK(cudaEventRecord(begin));
        run();
        CUDA_CHECK(cudaEventRecord(end));
        CUDA_CHECK(cudaEventSynchronize(end));
        float milliseconds = 0.0F;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (i >= 3) times.push_back(milliseconds);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
    return 1e-3 * static_cast<double>(times[repeats / 2]);
}

struct Operands {
    Operands(const HeadShape& of, std::int64_t samples, std::int64_t length)
        : shape(of),
          q(samples * length, of.heads * of.head_dim, 1),
          k(samples * length, of.kv_heads * of.head_dim, 2),
          v(samples * length, of.kv_heads * of.head_dim, 3),
          o(samples * length, of.heads * of.head_dim, 4),
          d_o(samples * length, of.heads * of.head_dim, 5),
          dq(samples * length, of.heads * of.head_dim, 6),
          dk(samples * length, of.kv_heads * of.head_dim, 7),
          dv(samples * length, of.kv_heads * of.head_dim, 8) {
        for (std::int64_t i = 0; i <= samples; ++i) {
            offsets.push_back(static_cast<std::int32_t>(i * length));
        }
        const auto lse_bytes =
            static_cast<std::size_t>(samples * length * of.heads) * sizeof(float);
        op.q = q.view();
        op.k = k.view();
        op.v = v.view();
        op.o = o.view();
        op.lse = static_cast<float*>(lse.reserve(lse_bytes, "lse"));
        op.head_dim = of.head_dim;
        op.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(of.head_dim)));
        op.rows.tokens = samples * length;
        op.rows.samples = samples;
        op.rows.host_offsets = offsets.data();
    }

    HeadShape shape;
    GpuRows q, k, v, o, d_o, dq, dk, dv;
    GrowingMemory lse;
    std::vector<std::int32_t> offsets;
    Attention op;
};

double seconds_now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void measure(const Operands& operands) {
    CudaAttention attention(nullptr, DType::bf16, kernels::most_shared_bytes);
    ScratchSizes sizes;
    if (kernels::keeps_attention_scores(operands.op.head_dim)) {
        sizes.attention_scores = device_memory::attention_most_scores;
    }
    attention.reserve(sizes);
    const Attention& op = operands.op;
    const AttentionBackward backward_op{op, operands.d_o.view(), operands.dq.view(),
                                        operands.dk.view(), operands.dv.view()};
    const std::int64_t length = op.rows.tokens / op.rows.samples;
    const double work =
        2.0 * static_cast<double>(op.rows.tokens) * static_cast<double>(length * op.q.cols);
    const double begin = seconds_now();
    attention.forward(op);
    attention.backward(backward_op);
    const double first = seconds_now() - begin;
    const double forward = median_seconds([&] { attention.forward(op); });
    const double backward = median_seconds([&] { attention.backward(backward_op); });
    std::printf("%4ld x %5ld  fwd %8.3f ms %6.1f TF  bwd %8.3f ms %6.1f TF  first %5.2f s\n",
                static_cast<long>(op.rows.samples), static_cast<long>(length), 1e3 * forward,
                1e-12 * work / forward, 1e3 * backward, 2.5e-12 * work / backward, first);
    std::fflush(stdout);
}

void measure_all(const HeadShape& shape) {
    struct Size {
        std::int64_t samples, length;
    };
    for (const Size size : {Size{4, 2048}, Size{8, 2048}, Size{1, 8192}, Size{1, 16384},
                            Size{8, 1024}, Size{16, 512}, Size{32, 256}, Size{64, 128}}) {
        measure(Operands(shape, size.samples, size.length));
    }
}

}  // namespace
}  // namespace loratrain

int main(int argc, char** argv) {
    try {
        loratrain::HeadShape shape;
        if (argc == 4) shape = {std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3])};
        loratrain::measure_all(shape);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "bench_attention: %s\n", error.what());
        return 1;
    }
    return 0;
}
