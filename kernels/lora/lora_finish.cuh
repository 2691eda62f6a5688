#pragma once

#include "lora_sweep_tile.cuh"

/// What follows a sweep: its partial sums are added up, in a fixed order.
namespace loratrain::kernels::sweep {

/// dS of all targets from their parts of the columns, with other columns 0; and, where a slot has
/// several tiles, the gradients of B from those of tiles. ds: [T, R] per target; `again`, where it
/// has data, gets the first target's too.
cudaError_t finish_backward(cudaStream_t stream, const SweepParams& p, const Matrix* ds,
                            const Matrix& again = {});

/// The gradients of A of slots that have several tiles.
cudaError_t finish_grad_a(cudaStream_t stream, const SweepParams& p);

}  // namespace loratrain::kernels::sweep
