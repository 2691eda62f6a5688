#pragma once

#include "grouped.h"

/// LoRA in experts on tensor cores, in bf16 with sums in fp32: one launch for all experts and
/// adapters of a linear. Which rows an adapter has in an expert is read on the device. Formulas:
/// ExpertLora in src/backend/ops/experts.h. Sums have a fixed order; no atomics.
///   on matrices   must satisfy grouped_takes(); else cudaErrorInvalidValue

namespace loratrain::kernels {

/// Rows [begin, end) of the tokens: an adapter's, with its factor on the linear in all experts.
struct ExpertLoraSlice {
    const float* factor;  ///< of expert 0: A [rank, N], or B [N, rank]
    float* gradient;      ///< of the same shape
    std::int32_t begin;
    std::int32_t end;
    std::int32_t rank;    ///< at least 1
    std::int32_t column;  ///< of S
    std::int32_t first;   ///< column of the product's result where the linear begins
    float scale;
    std::int32_t together = 0;  ///< slices of the same rows from this one on; 0: an earlier counts
    std::int32_t unused = 0;    ///< no bytes without a value: equal tables are found by their bytes
};

/// Of linears that share S. Slices of the same rows lie together; no two have the same gradient or
/// column of S.
struct ExpertLoraSlices {
    const ExpertLoraSlice* slices = nullptr;  ///< [count], device memory
    std::int32_t count = 0;
    std::int32_t most_ranks = 0;  ///< of the slices of the same rows
    std::int64_t cols = 0;        ///< N
    bool of_b = false;            ///< factors are B
};

/// Wide rows: [T k, N]; with `gathered` [T, N], row t for all places of t.
struct ExpertWide {
    Matrix x;
    bool gathered = false;
};

/// s_p = scale * x_p M_eᵀ in the columns of the place's adapter, with M rounded to bf16; other
/// columns are not written. `factors`: scratch for pack_expert_factors() of N and the columns of s.
cudaError_t narrow_experts_tensor(cudaStream_t stream, const ExpertRows& rows,
                                  const ExpertWide& wide, const Matrix& s,
                                  const ExpertLoraSlices& slices, void* factors);

/// Gradient of M_e += sum over the adapter's places p in e of s_pᵀ x_p.
cudaError_t add_expert_grads_tensor(cudaStream_t stream, const ExpertRows& rows,
                                    const ExpertWide& wide, const Matrix& s,
                                    const ExpertLoraSlices& slices);

/// The factors of all slices in bf16, as ExpertAddition::factors, and ExpertTile::added. Of B [E,
/// outputs, R]: the factor of column c of S in rows first ... first + N of its linear, else 0. Of A
/// [E, R, outputs] likewise. With `only_finite` values that are not finite become 0, so that they
/// do not reach other adapters' rows (0 x NaN = NaN). `factors`: E * outputs * R values from a
/// multiple of 16 bytes; R, outputs: multiples of 8.
cudaError_t pack_expert_factors(cudaStream_t stream, const ExpertRows& rows,
                                const ExpertLoraSlices& slices, std::int64_t outputs,
                                std::int64_t columns, void* factors, bool only_finite);

}  // namespace loratrain::kernels
