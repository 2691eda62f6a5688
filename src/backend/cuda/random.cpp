#include "kernels/random.h"

#include "backend/cuda/check.h"
#include "backend/cuda/cuda_backend.h"

namespace loratrain {

void CudaBackend::fill_random(const FillRandom& op) {
    CUDA_CHECK(kernels::fill_random(stream_, matrix_of(op.target), op.random.key, op.random.center,
                                    op.random.half_width));
}

void CudaBackend::draw_uniform(const DrawUniform& op) {
    CUDA_CHECK(kernels::draw_uniform(
        stream_, {op.values, op.rows, op.cols, op.first, op.stride, op.key, op.bound}));
}

void CudaBackend::add_noise(const AddNoise& op) {
    require_compute({&op.x});
    CUDA_CHECK(kernels::add_noise(
        stream_, {matrix_of(op.x), op.positions, op.sample_ids, op.key, op.step, op.amplitude}));
}

}  // namespace loratrain
