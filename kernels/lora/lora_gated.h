#pragma once

#include "kernels/activations.h"
#include "lora.h"

namespace loratrain::kernels {

/// Fused operators of an MLP with LoRA (LoraGatedForward, LoraGatedBackward of
/// src/backend/ops/lora.h).

/// In one pass over gate and up: swiglu(), and lora_shrink() of down on its h.
struct LoraGatedForwardParams {
    Matrix gate, up, h;  ///< [T, F]
    Gate function = Gate::silu;
    Matrix s;           ///< [T, R] of down
    Matrix again;       ///< if it has data, a copy of s
    LoraTables tables;  ///< of down alone; tiles of lora_gated_forward_tile_rows()
    void* workspace = nullptr;
};
/// True for bf16 rows in multiples of 16 bytes, and slots of at most 16 ranks.
bool lora_gated_forward_takes(const Matrix& gate, const Matrix& up, const Matrix& h,
                              std::int32_t largest_rank);
/// 128, or a number near it with which blocks that run one after another have fewer rows in total.
std::int32_t lora_gated_forward_tile_rows(const LoraGatedForwardParams& params,
                                          const LoraRowCuts& cuts, int processors);
std::int64_t lora_gated_forward_workspace(const LoraGatedForwardParams& params);
cudaError_t lora_gated_forward(cudaStream_t stream, const LoraGatedForwardParams& params);

/// In one pass over gate, up and dh: swiglu_backward(), lora_backward() of gate and up, and
/// lora_grad_a() of down. Down's input h is not written.
struct LoraGatedParams {
    SwiGluBackwardParams product;  ///< without codes; dgate and dup lie side by side
    Matrix s[2];                   ///< [T, R], S of gate and up from the forward pass
    Matrix ds[2];                  ///< [T, R], dS of gate and up
    Matrix ds_of_down;             ///< [T, R], dS of down, an input
    bool adds_down = false;        ///< adds drop'(dS A) of down to dh first
    LoraTables tables;             ///< targets gate, up, down; only down's slots drop
    void* workspace = nullptr;
    int shared_limit = least_shared_bytes;
};
/// True for bf16 rows in multiples of 16 bytes, slots of at most 16 ranks, and sm_90's shared
/// memory.
bool lora_gated_backward_takes(const SwiGluBackwardParams& product, std::int32_t largest_rank,
                               int shared_limit);
std::int32_t lora_gated_backward_tile_rows(const LoraGatedParams& params, const LoraRowCuts& cuts,
                                           int processors);
std::int64_t lora_gated_backward_workspace(const LoraGatedParams& params);
cudaError_t lora_gated_backward(cudaStream_t stream, const LoraGatedParams& params);

}  // namespace loratrain::kernels
