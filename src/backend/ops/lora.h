#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/elementwise.h"
#include "backend/ops/packed_rows.h"
#include "base/tensor.h"

namespace loratrain {

/// One adapter's factors on one linear, as a microbatch needs them. rank 0 = not targeted.
/// A: [rank, K], B: [N, rank], row-major fp32 masters, gradients of the same shapes (accumulated).
struct LoraSlot {
    const float* a = nullptr;
    const float* b = nullptr;
    float* grad_a = nullptr;
    float* grad_b = nullptr;
    std::int32_t rank = 0;
    float scale = 1.0F;             ///< lora_alpha / r (or / sqrt(r))
    std::int32_t column = 0;        ///< first column of this slot in S and dS
    std::uint32_t dropout = 0;      ///< threshold of base/rng.h; 0 = no dropout
    std::uint64_t dropout_key = 0;  ///< tensor_key(seed, adapter, module path)
    /// The linear's input column that X's first one is, a multiple of 8, the same of all slots:
    /// masks are the whole input's.
    std::int32_t dropout_column = 0;
    /// Where it has rows, LoraBackward and LoraGradA write the gradients, whatever they hold,
    /// instead of adding to them.
    bool begins_gradients = false;
    /// DoRA's, null without it: m [N], its gradient, and |W + scale B A|² of the rows of W.
    const float* magnitude = nullptr;
    float* grad_magnitude = nullptr;
    float* squares = nullptr;
    /// Of a residual start (TensorRole::start_a), else null: A0 [rank, K] and B0 transposed [rank,
    /// N]. No operator looks at them by these names.
    const float* start_a = nullptr;
    const float* start_b = nullptr;
};

/// Rows [begin, end) of a microbatch belong to slot `slot`; segments are disjoint and ascending.
struct LoraSegment {
    std::int32_t slot = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::uint32_t step = 0;  ///< optimizer step, enters the dropout counter
};

/// The segments and rows of a microbatch, shared by its LoRA ops. [host]
struct LoraRows {
    std::span<const LoraSegment> segments;
    PackedRows rows;
};

/// One of several linears that read the same X (q,k,v or gate,up). [host]
/// S, dS: [T, R], compute_dtype().
struct LoraTarget {
    std::span<const LoraSlot> slots;
    TensorView s;
};

/// S[t, column .. column + rank) = scale * drop(x_t) Aᵀ for the slot that owns row t; every other
/// column of S is set to 0. drop is per target (independent masks, as PEFT). X: [T, K].
/// `again`, where it has data, gets the S of the first target too, or of several of them side by
/// side: as many as it has columns for.
struct LoraShrink {
    TensorView x;
    std::span<const LoraTarget> targets;
    LoraRows rows;
    TensorView again = {};
};

/// Y += S Bᵀ per segment (segmented path). Y: [T, N].
struct LoraExpand {
    LoraTarget target;
    TensorView y;
    LoraRows rows;
};

/// From one pass over dY: dS[t, own columns] = scale * dy_t B, other columns 0;
/// grad_b += dYᵀ S per segment. dY: [T, N], S and dS: [T, R] (S already carries the scale).
/// lora_backward_group: of at most 3 linears that read the same X, with the same `rows`; quicker
/// than one by one where their dY lie side by side.
struct LoraBackward {
    TensorView dy;
    LoraTarget target;  ///< .s = S of the forward pass
    TensorView ds;
    LoraRows rows;
};

/// grad_a += dSᵀ drop(X) per segment and target. X: [T, K]; each target's .s is its dS. Where
/// `weight` is not null what is added in column k is multiplied by weight[k] + weight_offset: with
/// an RmsNorm's, x from before that norm and dS times 1 / rms of x's rows (RmsNormBackward::scaled)
/// that is the gradient of A behind the norm.
struct LoraGradA {
    TensorView x;
    std::span<const LoraTarget> targets;
    LoraRows rows;
    const void* weight = nullptr;  ///< [K], compute_dtype()
    float weight_offset = 0.0F;
};

/// h of `product`, and S of `down` from it (LoraShrink with `again`): as SwiGlu and LoraShrink.
struct LoraGatedForward {
    SwiGlu product;
    LoraTarget down;
    LoraRows rows;
    TensorView again = {};
};

/// What lies between the gradients of down and of gate and up in an MLP, in this order:
///   with adds_down, dh += drop'(dS A) of `down` (LoraExpandBackward),
///   dgate, dup and h of `product` (SwiGluBackward),
///   grad_a += dSᵀ drop(h) of `down`, whose dS is there already,
///   dS and grad_b of `gate` and `up` from dgate and dup (LoraBackward).
/// What h of `product` holds afterwards is of no use, and with adds_down neither is dh.
struct LoraGatedBackward {
    SwiGluBackward product;
    LoraTarget down;  ///< .s = its dS
    LoraBackward gate;
    LoraBackward up;
    bool adds_down = false;
};

/// dX = (or += with accumulate) sum over targets of drop'(dS A) per segment, where drop' applies
/// the forward mask of that target and its 1/(1-p). dX: [T, K]; rows outside every segment are set
/// to 0 (or left).
struct LoraExpandBackward {
    TensorView dx;
    std::span<const LoraTarget> targets;  ///< .s = dS
    LoraRows rows;
    bool accumulate = false;
};

/// Of LoRA on an embedding: A [rank, K] by columns, where row t has column ids[t].
/// - lora_gather_a: S[t, column .. column + rank) = scale * A[:, ids[t]], or 0 where ids[t] is
///   negative, for the slot that owns row t; other columns of rows in segments are set to 0.
/// - lora_scatter_a: grad_a[:, ids[t]] += dS_t but for `still`, row by row: how rows are cut into
///   calls changes no bit.
struct LoraIds {
    const std::int32_t* ids = nullptr;  ///< [T]; negative: none, as of another lane's columns
    std::int64_t columns = 0;           ///< K
    LoraTarget target;                  ///< .s = S or dS [T, R]
    LoraRows rows;
    std::int32_t still = -1;  ///< an id whose column gets no gradient; negative: none
};

/// Pads of the augmented matrix, of many linears in one call: b_pad [N, R or more] gets B of each
/// slot in its columns, counted from `first` on, a_pad [R, K] gets A of each slot in its rows, the
/// rest 0. b_pad and a_pad: compute_dtype(). Source: BatchLoRA of mLoRA (design.md "One augmented
/// matrix"). Factors that are not finite in that type are written as 0 (isolation: 0 x NaN = NaN).
struct LoraPack {
    std::span<const LoraSlot> slots;  ///< [host]
    TensorView b_pad;
    TensorView a_pad;
    std::int64_t first = 0;  ///< the R columns of b_pad that are not all 0 begin here
};

}  // namespace loratrain
