#pragma once

#include "lora.h"

namespace loratrain::kernels {

/// The implementations of lora.h on tensor cores (mma.sync m16n8k16, bf16 in, fp32 sums).

/// bf16 rows that can be read in pieces of 16 bytes.
bool lora_tensor_fits(const Matrix& x);

/// Of a tile, of `rows` in all.
std::int32_t lora_tensor_shrink_rows(std::int64_t rows, int processors);
std::int64_t lora_tensor_copy_ld(std::int64_t k);
cudaError_t lora_shrink_tensor(cudaStream_t stream, const LoraShrinkParams& params);

/// As many as let all blocks run at once, and at most so many that ranks and lengths of segments
/// even out: a block begins with its factors, while nothing else is under way.
std::int32_t lora_tensor_expand_rows(const LoraRowCuts& cuts, std::int64_t columns, bool dropout,
                                     int processors);
cudaError_t lora_expand_tensor(cudaStream_t stream, const LoraExpandParams& params);

/// The fewest rows per tile with which all blocks of a pass run at once; where parts are too many
/// for that, as if all rows were one.
std::int32_t lora_tensor_pass_rows(const LoraRowCuts& cuts, int column_blocks, int processors);
/// The same of sums over rows: twice as many where those are few, and the sums of tiles much beside
/// X, if nearly every multiprocessor has a block then, too.
std::int32_t lora_tensor_gradient_rows(const LoraRowCuts& cuts, int column_blocks, int processors);
/// Up to 16 ranks: tiles of 256 rows, and as many parts of the columns as let all blocks run at
/// once. More ranks, few rows and columns: as many of either, so that blocks for dS and for dB have
/// equal shares of dY and about one is for each multiprocessor.
LoraBackwardCut lora_tensor_backward_cut(const LoraBackwardParams& params, const LoraRowCuts& cuts,
                                         int processors);
/// Blocks of columns of a pass.
int lora_grad_a_column_blocks(const LoraGradAParams& params);
std::int64_t lora_backward_tensor_workspace(const LoraBackwardParams& params);
cudaError_t lora_backward_tensor(cudaStream_t stream, const LoraBackwardParams& params);
std::int64_t lora_grad_a_tensor_workspace(const LoraGradAParams& params);
cudaError_t lora_grad_a_tensor(cudaStream_t stream, const LoraGradAParams& params);

}  // namespace loratrain::kernels
