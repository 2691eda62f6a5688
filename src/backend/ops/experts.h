#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/lora.h"
#include "base/operators.h"
#include "base/tensor.h"

namespace loratrain {

/// To which k of E experts each of T rows goes, and the T k rows in the order of experts: of one
/// expert after another, in each as they come. Backend memory.
struct ExpertRoutes {
    std::int64_t tokens = 0;
    std::int64_t experts = 0;
    std::int64_t per_token = 0;
    float* probabilities = nullptr;   ///< [T, E]
    float* weights = nullptr;         ///< [T, k]
    std::int32_t* chosen = nullptr;   ///< [T, k], ascending
    std::int32_t* places = nullptr;   ///< [T, k], where the row is in the order of experts
    std::int32_t* rows = nullptr;     ///< [T k], which row each of these is
    std::int32_t* offsets = nullptr;  ///< [E + 1], first row of each expert
    /// For products of all experts at once on a GPU; null where none are made.
    std::int32_t* tiles = nullptr;     ///< most_expert_tiles(), of expert_tile_bytes
    std::int32_t* counters = nullptr;  ///< [2], tiles that there are, and 0 between products
    std::int32_t* entries = nullptr;   ///< [T k], of each row which of [T, k] it is
    std::int64_t copies() const { return tokens * per_token; }
};

/// Makes the routes: probabilities p = softmax of the logits in fp32, the k largest of a row (the
/// first of equals), weights = p of these, with `normalised` divided by their sum, rounded to
/// compute_dtype(). logits: [T, E].
struct Route {
    TensorView logits;
    ExpertRoutes to;
    bool normalised = false;
};

/// A linear of all experts: of the rows x_e and y_e of each expert e, in the order of experts,
///   y_e = x_e W_eᵀ      x: [T k, K], y: [T k, N]
///   y_e = x_e W_e       x: [T k, N], y: [T k, K], with `backward`
/// w: [E N, K], expert by expert, without gaps. x and y do not overlap. Equal bits for an expert's
/// rows whatever other experts have. In bf16 on CUDA one kernel, else a gemm for each expert that
/// has rows, for which the host waits for the offsets.
struct ExpertProduct {
    TensorView x;
    TensorView w;
    TensorView y;
    ExpertRoutes routes;
    bool backward = false;
};

/// gate_up_p = h_t W_eᵀ of each row p, which is row t and goes to expert e; with g and u the halves
/// of gate_up_p
///   product_p = f(g) u
/// h: [T, H]; w: [E 2 F, H], of each expert gates before ups, as ExpertProduct has it; gate_up:
/// [T k, 2 F]; product: [T k, F], not made where it has no data. `rows` [T k, H] is scratch where
/// the backend does not take the op at once (takes_at_once).
struct ExpertGateUp {
    TensorView h;
    TensorView w;
    TensorView gate_up;
    TensorView product;
    TensorView rows;
    ExpertRoutes routes;
    Activation activation = Activation::silu;
};

/// Gradients of y_t = sum over the experts e of row t of w_te f(g) u W_eᵀ, with rows p and g, u as
/// above and inner_p = dy_t W_e:
///   d_weights[t, j] = inner_p . f(g) u
///   d_gate_up_p = w_te (inner_p u f'(g), inner_p f(g))
/// dy: [T, H]; w: [E H, F]; gate_up, d_gate_up: [T k, 2 F]; d_weights: [T, k]. Scratch where the
/// backend does not take the op at once: rows [T k, H], product and inner [T k, F].
struct ExpertDownBackward {
    TensorView dy;
    TensorView w;
    TensorView gate_up;
    TensorView d_gate_up;
    float* d_weights = nullptr;
    TensorView rows;
    TensorView product;
    TensorView inner;
    ExpertRoutes routes;
    Activation activation = Activation::silu;
};

/// y_t = added_t + sum over the k experts of row t, in their order, of w x_place, with w = 1 unless
/// `weighted`. x: [T k, H]; y, added: [T, H], may be the same.
struct CombineExperts {
    TensorView y;
    TensorView x;
    TensorView added;
    ExpertRoutes routes;
    bool weighted = false;
};

/// Of y = sum w_j down(product_j), where `inner` has the gradient of y times down, row by row:
///   d_weights[t, j] = inner_place . product_place, and inner_place *= w
/// inner, product: [T k, F]; d_weights: [T, k].
struct WeighExperts {
    TensorView inner;
    TensorView product;
    float* d_weights = nullptr;
    ExpertRoutes routes;
};

/// x_place *= w of each of the T k rows. x: [T k, N].
struct WeighRows {
    TensorView x;
    ExpertRoutes routes;
};

/// LoRA in experts, on rows in their order: those of expert e and of a row in a segment have the
/// factor M_e of the segment's slot, of its A [rank, N], or with of_b of its B [N, rank]
/// transposed. Slots have the first expert's A and B and their gradients; those of expert e lie e
/// times as many values behind. No dropout. Columns c of a row of narrow: column .. column + rank.
/// - narrow_experts: narrow[p, c] = scale * wide_p M_eᵀ, all other columns 0
/// - widen_experts: wide_p += narrow[p, c] M_e
/// - add_expert_grads: gradient of M_e += sum of narrow[p, c]ᵀ wide_p
/// So S, S Bᵀ, dS, dS A and gradients as in LoraShrink, LoraExpand, LoraBackward, LoraGradA.
/// wide: [T k, N]; narrow: [T k, R]; rows.segments count rows of T. Without host synchronisation,
/// sums in one order.
struct ExpertLora {
    TensorView wide;
    TensorView narrow;
    std::span<const LoraSlot> slots;  ///< [host]
    LoraRows rows;
    ExpertRoutes routes;
    bool of_b = false;
};

/// d_logits [T, E] = gradient of Route's weights with respect to its logits.
struct RouteBackward {
    TensorView d_logits;
    const float* d_weights = nullptr;
    ExpertRoutes routes;
    bool normalised = false;
};

/// The views of these ops must agree in shape.
void check_shapes(const Route& op);
void check_shapes(const ExpertProduct& op);
void check_shapes(const ExpertGateUp& op);
void check_shapes(const ExpertDownBackward& op);
void check_shapes(const CombineExperts& op);
void check_shapes(const WeighExperts& op);
void check_shapes(const WeighRows& op);
void check_shapes(const ExpertLora& op);
void check_shapes(const RouteBackward& op);

}  // namespace loratrain
