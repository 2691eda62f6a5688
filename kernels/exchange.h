#pragma once

#include <cstddef>

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Rows of values, apart from each other: to[r to_ld + c] = from[r from_ld + c].
struct BlockCopy {
    const float* from = nullptr;
    float* to = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t from_ld = 0;
    std::int64_t to_ld = 0;
};
cudaError_t copy_blocks(cudaStream_t stream, const BlockCopy* copies, std::size_t count);

/// So many parts of a sum, of `count` values each: part i begins at values + places[i].
struct PartsToAdd {
    float* values = nullptr;
    const std::int64_t* places = nullptr;  ///< [parts], host memory
    std::int32_t parts = 0;
    std::int64_t count = 0;
};
/// Each part becomes the sum of all, added in their order in fp32; *squares += the sum of the sums'
/// squares, in fp64, by blocks first. The same bits in every run. workspace: add_parts_workspace
/// doubles.
cudaError_t add_parts(cudaStream_t stream, const PartsToAdd* sums, std::size_t count,
                      double* squares, double* workspace);

}  // namespace loratrain::kernels
