#include "kernels/random.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

void CudaBackend::fill_random(const TensorView& target, const RandomMatrix& random) {
    CUDA_CHECK(kernels::fill_random(stream_, matrix_of(target), random.key, random.center,
                                    random.half_width));
}

}  // namespace loratrain
