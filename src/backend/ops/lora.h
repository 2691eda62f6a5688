#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/elementwise.h"
#include "backend/ops/rows.h"
#include "base/tensor.h"

namespace loratrain {

/// LoRA (Hu et al. 2021) on rows of many adapters in one microbatch.
///   X [T, K]   input of a linear            A [rank, K], B [N, rank]   an adapter's factors
///   S [T, R]   scale * drop(X) Aᵀ           Y [T, N]                   output, += S Bᵀ
/// S and dS have columns for all adapters of the microbatch; a row uses those of its own adapter.

/// One adapter's factors on one linear, and their gradients of the same shapes: row-major, fp32.
/// rank 0 = the adapter does not target the linear.
struct LoraSlot {
    const float* a = nullptr;
    const float* b = nullptr;
    float* grad_a = nullptr;
    float* grad_b = nullptr;
    std::int32_t rank = 0;
    float scale = 1.0F;             ///< lora_alpha / r (or / sqrt(r))
    std::int32_t column = 0;        ///< first column of this slot in S and dS
    std::uint32_t dropout = 0;      ///< dropout_threshold() (base/rng.h); 0 = no dropout
    std::uint64_t dropout_key = 0;  ///< tensor_key(seed, adapter, module path)
    /// Column of the linear's whole input that is X's first column (lanes have a part of it): a
    /// multiple of 8, equal for all slots. Dropout masks are those of the whole input.
    std::int32_t dropout_column = 0;
    /// If true, LoraBackward and LoraGradA overwrite the gradients of a slot that has rows (first
    /// microbatch of a batch) instead of accumulating.
    bool begins_gradients = false;
    /// DoRA, else null: m [N], its gradient [N], and the squares [N] of the norms of the rows of
    /// W + scale B A.
    const float* magnitude = nullptr;
    float* grad_magnitude = nullptr;
    float* squares = nullptr;
    /// A residual start (TensorRole::start_a), else null: A0 [rank, K] and B0ᵀ [rank, N]. No
    /// operator reads these two fields.
    const float* start_a = nullptr;
    const float* start_b = nullptr;
};

/// Rows [begin, end) of a microbatch, which belong to slot `slot`. Segments are disjoint and
/// ascending.
struct LoraSegment {
    std::int32_t slot = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::uint32_t step = 0;  ///< optimizer step, enters the dropout counter
};

/// Segments and samples of a microbatch, shared by its LoRA operators. [host]
struct LoraRows {
    std::span<const LoraSegment> segments;
    PackedRows rows;
};

/// One of several linears that read the same X (q, k, v or gate, up). [host]
/// s: S or dS, [T, R], compute_dtype().
struct LoraTarget {
    std::span<const LoraSlot> slots;
    TensorView s;
};

/// S[t, column .. column + rank) = scale * drop(x_t) Aᵀ for the slot that owns row t; all other
/// columns of S are set to 0. Targets have independent dropout masks, as in PEFT. X: [T, K]. If
/// `again` has data, it receives a copy of the S of the first targets, side by side, as many as fit
/// its columns.
struct LoraShrink {
    TensorView x;
    std::span<const LoraTarget> targets;
    LoraRows rows;
    TensorView again = {};
};

/// Y += S Bᵀ, segment by segment. Y: [T, N].
struct LoraExpand {
    LoraTarget target;
    TensorView y;
    LoraRows rows;
};

/// Backward pass of B, in one pass over dY:
///   dS[t, columns of its slot] = scale * dy_t B, other columns 0
///   grad_b += dYᵀ S, segment by segment; S already has the scale
/// dY: [T, N]; S, dS: [T, R]. lora_backward_group: for at most 3 linears that read the same X, with
/// equal `rows`; faster than one by one if their dY lie side by side.
struct LoraBackward {
    TensorView dy;
    LoraTarget target;  ///< .s: S of the forward pass
    TensorView ds;
    LoraRows rows;
};

/// grad_a += dSᵀ drop(X), segment by segment and target by target. X: [T, K]; a target's .s is dS.
/// If `weight` is not null, the sum for column k is multiplied by weight[k] + weight_offset. With
/// the weight of an RmsNorm, X from before the norm, and dS times 1 / rms of X's rows
/// (RmsNormBackward::scaled), the result is the gradient of an A behind the norm.
struct LoraGradA {
    TensorView x;
    std::span<const LoraTarget> targets;
    LoraRows rows;
    const void* weight = nullptr;  ///< [K], compute_dtype()
    float weight_offset = 0.0F;
};

/// SwiGlu, then LoraShrink of `down` on its h, with `again`.
struct LoraGatedForward {
    SwiGlu product;
    LoraTarget down;
    LoraRows rows;
    TensorView again = {};
};

/// Backward pass of an MLP between down and gate, up, in this order:
///   with adds_down, dh += drop'(dS A) of `down`       (LoraExpandBackward)
///   dgate, dup and h of `product`                     (SwiGluBackward)
///   grad_a of `down` += dSᵀ drop(h), from its dS      (LoraGradA)
///   dS and grad_b of `gate` and `up`                  (LoraBackward)
/// The contents of h, and with adds_down of dh, are undefined afterwards.
struct LoraGatedBackward {
    SwiGluBackward product;
    LoraTarget down;  ///< .s: dS
    LoraBackward gate;
    LoraBackward up;
    bool adds_down = false;
};

/// dX = sum over targets of drop'(dS A), segment by segment, or += with accumulate. drop' applies
/// the target's mask of the forward pass and its 1 / (1 - p). dX: [T, K]. Rows outside every
/// segment are set to 0; with accumulate they are left as they are.
struct LoraExpandBackward {
    TensorView dx;
    std::span<const LoraTarget> targets;  ///< .s: dS
    LoraRows rows;
    bool accumulate = false;
};

/// LoRA on an embedding: row t uses column ids[t] of its slot's A [rank, K].
///   lora_gather_a   S[t, column .. column + rank) = scale * A[:, ids[t]], or 0 if ids[t] is
///   negative;
///                   other columns of rows in segments are set to 0
///   lora_scatter_a  grad_a[:, ids[t]] += dS_t, unless ids[t] is `still`; row by row, so that
///                   dividing the rows among calls changes no bit
struct LoraIds {
    const std::int32_t* ids = nullptr;  ///< [T]; negative = none (another lane's column)
    std::int64_t columns = 0;           ///< K
    LoraTarget target;                  ///< .s: S or dS, [T, R]
    LoraRows rows;
    std::int32_t still = -1;  ///< id whose column gets no gradient; negative = none
};

/// Pads of the augmented matrix, for one linear (a call has many):
///   b_pad [N, >= R]   B of each slot in the slot's columns, counted from `first`; else 0
///   a_pad [R, K]      A of each slot in the slot's rows; else 0
/// Both have compute_dtype(). Values that are not finite in that type become 0, so that they cannot
/// reach other adapters' rows (0 x NaN = NaN). Source: BatchLoRA of mLoRA (design.md "One augmented
/// matrix").
struct LoraPack {
    std::span<const LoraSlot> slots;  ///< [host]
    TensorView b_pad;
    TensorView a_pad;
    std::int64_t first = 0;  ///< first of the R columns of b_pad that hold factors
};

}  // namespace loratrain
