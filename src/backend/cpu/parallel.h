#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace loratrain {

/// Loops on OpenMP threads.

/// Runs body(i) for i in [0, count) on `threads` threads, in any order. What the items are must not
/// depend on `threads`. GEMM libraries that the body calls stay on its thread. Rethrows an
/// exception of the body.
template <class Body>
void parallel_for(int threads, std::int64_t count, const Body& body) {
    if (count <= 0) return;
    // Teams of 1 or `threads` only: libgomp ends and restarts threads when the size changes.
    const int team = count == 1 ? 1 : threads;
    std::exception_ptr failure;
#pragma omp parallel num_threads(team)
    {
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < count; ++i) {
            try {
                body(i);
            } catch (...) {
#pragma omp critical(loratrain_parallel_for)
                failure = std::current_exception();
            }
        }
    }
    if (failure) std::rethrow_exception(failure);
}

/// Runs body(begin, end) for ranges of rows of about 16,384 elements each.
template <class Body>
void parallel_rows(int threads, std::int64_t rows, std::int64_t cols, const Body& body) {
    constexpr std::int64_t elements_per_block = 16384;
    const std::int64_t block =
        std::max<std::int64_t>(1, elements_per_block / std::max<std::int64_t>(1, cols));
    parallel_for(threads, (rows + block - 1) / block,
                 [&](std::int64_t i) { body(i * block, std::min(rows, (i + 1) * block)); });
}

}  // namespace loratrain
