#include "bench/bench_run.h"

#include <algorithm>
#include <chrono>

#include "base/system.h"

namespace loratrain {

namespace {

constexpr int repetitions = 5;
constexpr std::int64_t chunk_rows = 512;

Buffer random_matrix(Backend& backend, std::int64_t rows, std::int64_t cols) {
    const DType dtype = backend.compute_dtype();
    Buffer buffer =
        backend.allocate(static_cast<std::size_t>(rows * cols) * size_of(dtype), "bench matrix");
    backend.fill_random({matrix(buffer.data(), dtype, rows, cols), {1, 0.0F, 0.5F}});
    return buffer;
}

double best_seconds(Backend& backend, const Gemm& op) {
    double best = 1e30;
    for (int i = 0; i < repetitions; ++i) {
        const auto start = std::chrono::steady_clock::now();
        backend.gemm(op);
        backend.synchronize();
        best = std::min(best, seconds_since(start));
    }
    return best;
}

/// Forward [m, k] x [n, k]ᵀ and input gradient [m, n] x [n, k].
double linear_seconds(Backend& backend, std::int64_t m, LinearShape shape) {
    const DType dtype = backend.compute_dtype();
    const Buffer x = random_matrix(backend, m, shape.in);
    const Buffer w = random_matrix(backend, shape.out, shape.in);
    const Buffer y = random_matrix(backend, m, shape.out);
    Gemm forward;
    forward.a = matrix(x.data(), dtype, m, shape.in);
    forward.b = matrix(w.data(), dtype, shape.out, shape.in);
    forward.c = matrix(y.data(), dtype, m, shape.out);
    forward.transpose_b = true;
    Gemm backward;
    backward.a = forward.c;
    backward.b = forward.b;
    backward.c = forward.a;
    return best_seconds(backend, forward) + best_seconds(backend, backward);
}

}  // namespace

double gemm_seconds(const ModelSpec& model, std::int64_t tokens, Backend& backend) {
    double per_layer = 0.0;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!has_linear(model, linear)) continue;
        per_layer += linear_seconds(backend, tokens, linear_shape(model, linear));
    }
    const std::int64_t rows = std::min(tokens, chunk_rows);
    const double head = linear_seconds(backend, rows, {model.hidden_size, model.vocab_size}) *
                        static_cast<double>(tokens) / static_cast<double>(rows);
    return static_cast<double>(model.layers) * per_layer + head;
}

}  // namespace loratrain
