#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace loratrain {

void CpuBackend::vera_product(const VeraProduct& op) {
    parallel_rows(threads_, op.out, op.rank, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            const float* b = op.b + row * op.rank;
            float* product = op.product + row * op.rank;
            for (std::int32_t i = 0; i < op.rank; ++i) {
                product[i] = op.scale_b[row] * b[i] * op.scale_d[i];
            }
        }
    });
}

void CpuBackend::vera_gradients(const VeraGradients& op) {
    const VeraProduct& of = op.of;
    std::vector<double> sums(static_cast<std::size_t>(of.rank), 0.0);
    for (std::int64_t row = 0; row < of.out; ++row) {
        const float* b = of.b + row * of.rank;
        float* gradient = op.gradient + row * of.rank;
        double of_row = 0.0;
        for (std::int32_t i = 0; i < of.rank; ++i) {
            const double value = static_cast<double>(gradient[i]) * b[i];
            sums[static_cast<std::size_t>(i)] += value * of.scale_b[row];
            of_row += value * of.scale_d[i];
            gradient[i] = 0.0F;
        }
        op.grad_b[row] += static_cast<float>(of_row);
    }
    for (std::int32_t i = 0; i < of.rank; ++i) {
        op.grad_d[i] += static_cast<float>(sums[static_cast<std::size_t>(i)]);
    }
}

}  // namespace loratrain
