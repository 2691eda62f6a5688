#pragma once

#include <cstddef>

#include "matrix.h"
#include "sizes.h"

namespace loratrain::kernels {

/// Copies and sums for exchanges of gradients between ranks (src/backend/side_stream.h).

/// A copy of rows: to[r * to_ld + c] = from[r * from_ld + c]. `from` and `to` do not overlap.
struct BlockCopy {
    const float* from = nullptr;
    float* to = nullptr;
    std::int64_t rows = 0;
    std::int64_t cols = 0;
    std::int64_t from_ld = 0;
    std::int64_t to_ld = 0;
};
cudaError_t copy_blocks(cudaStream_t stream, const BlockCopy* copies, std::size_t count);

/// Terms of a sum, of `count` values each; term i begins at values + places[i].
struct PartsToAdd {
    float* values = nullptr;
    const std::int64_t* places = nullptr;  ///< [parts] in host memory
    std::int32_t parts = 0;
    std::int64_t count = 0;
};
/// Replaces each term by the sum of all terms, added in order in fp32; *squares += sum of the
/// squares of the sums, in fp64, first within blocks. Reproducible to the bit. workspace:
/// add_parts_workspace doubles.
cudaError_t add_parts(cudaStream_t stream, const PartsToAdd* sums, std::size_t count,
                      double* squares, double* workspace);

}  // namespace loratrain::kernels
