#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/parallel.h"

namespace loratrain {

void CpuBackend::fill_random(const TensorView& target, const RandomMatrix& random) {
    parallel_rows(threads_, target.rows, target.cols, [&](std::int64_t begin, std::int64_t end) {
        fill_random_rows(random, begin, target.row_range(begin, end - begin));
    });
}

}  // namespace loratrain
