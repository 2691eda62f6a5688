#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"
#include "base/error.h"

namespace loratrain {

void CpuBackend::dequantize(const TensorView& target, const QuantizedMatrix& weights) {
    require_f32({&target});
    LORATRAIN_CHECK(target.rows == weights.rows && target.cols == weights.cols, "dequantize of [",
                    weights.rows, ", ", weights.cols, "] to [", target.rows, ", ", target.cols,
                    "]");
    parallel_rows(threads_, target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t row = begin; row < end; ++row) {
            effective_row(weights, row, target.f32() + row * target.ld);
        }
    });
}

}  // namespace loratrain
