#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace loratrain {

void CpuBackend::dequantize(const Dequantize& op) {
    const TensorView& target = op.target;
    require_f32({&target});
    check_shapes(op);
    parallel_rows(threads_, target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            effective_row(op.weights, row, target.f32() + row * target.ld);
        }
    });
}

}  // namespace loratrain
