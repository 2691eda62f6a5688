#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/gemm.h"
#include "backend/ops/lora.h"
#include "base/operators.h"
#include "base/tensor.h"

namespace loratrain {

/// Operators of experts: routing, products of all experts at once, LoRA in experts.

/// Routes of T rows to k experts each. The "order of experts" of the T k rows: expert after expert,
/// and within an expert by row. Of the experts that a router chooses among, E' = routed(), a lane
/// has E, those behind the first `before`; the router may have fewer there. Places in other lanes'
/// experts are -1: operators leave them out, and what they make has nothing in the rows behind
/// those of the own experts. All arrays are backend memory.
struct ExpertRoutes {
    std::int64_t tokens = 0;
    std::int64_t experts = 0;
    std::int64_t per_token = 0;
    float* probabilities = nullptr;   ///< [T, E'], the scores
    float* weights = nullptr;         ///< [T, k]
    std::int32_t* chosen = nullptr;   ///< [T, k], ascending, of the E'
    std::int32_t* places = nullptr;   ///< [T, k], places in the order of experts
    std::int32_t* rows = nullptr;     ///< [T k], the row at each place; -1 where none is
    std::int32_t* offsets = nullptr;  ///< [E + 1], first row of each expert
    /// For products of all experts at once on a GPU; else null.
    std::int32_t* tiles = nullptr;  ///< most_expert_tiles() entries of expert_tile_bytes
    std::int32_t* counters =
        nullptr;  ///< [2]: number of tiles; a counter that is 0 between products
    std::int32_t* entries = nullptr;  ///< [T k], the index in [T, k] of each place
    std::int64_t before = 0;          ///< other lanes' experts before the own,
    std::int64_t others = 0;          ///< and all of them
    std::int64_t routed() const { return experts + others; }
    std::int64_t copies() const { return tokens * per_token; }
};

/// Makes the routes of logits [T, E'], fp32:
///   p = scores of the logits; key_e = p_e + bias_e
///   chosen = the k experts in the used groups with the largest keys of a row
///   weights = scale p of the chosen, with `normalised` divided by their sum (of sigmoid scores
///   plus least_score_sum)
/// The experts lie in `groups` equal groups, one behind another. The used_groups with the largest
/// sums of their two largest keys are used; all, where there is one. Of equals the first is chosen
/// (DeepSeek-AI 2024, "DeepSeek-V3").
struct Route {
    TensorView logits;
    ExpertRoutes to;
    bool normalised = false;
    RouterScores scores = RouterScores::softmax;
    const float* bias = nullptr;  ///< [E']; null: 0
    std::int64_t groups = 1;
    std::int64_t used_groups = 1;
    float scale = 1.0F;
};

/// LoRA in experts, on rows in the order of experts. Place p, of expert e and of a row in a
/// segment, has the factor M_e of the segment's slot: A_e [rank, N], or with `of_b` B_eᵀ (B_e: [N,
/// rank]). A slot points to A and B of expert 0 and their gradients; those of expert e lie e times
/// as many values behind. Columns c of narrow: column .. column + rank of the slot. No dropout.
///   narrow_experts    narrow[p, c] = scale * wide_p M_eᵀ, and 0 in all other columns
///   widen_experts     wide_p += narrow[p, c] M_e
///   add_expert_grads  gradient of M_e += sum over p of narrow[p, c]ᵀ wide_p
/// These make S, S Bᵀ, dS, dS A and the gradients, as LoraShrink, LoraExpand, LoraBackward and
/// LoraGradA do. wide: [T k, N]; narrow: [T k, R]; rows.segments count rows of T, and
/// each has a slot of its own. The host does not
/// wait; sums have a fixed order. On CUDA in bf16, narrow_experts rounds M_e to bf16.
struct ExpertLora {
    TensorView wide;
    TensorView narrow;
    std::span<const LoraSlot> slots;  ///< [host]
    LoraRows rows;
    ExpertRoutes routes;
    bool of_b = false;
    /// wide is [T, N], and row t is wide_p of all its places; not of widen_experts.
    bool gathered = false;
};
/// Linears with the same narrow, routes, rows and of_b, of whose columns of narrow no two are the
/// same. In one call faster than one by one where they have the same wide.
using ExpertLoras = std::span<const ExpertLora>;

/// e4m3 codes of W of all experts, which a product reads in place of W; of W's view only the shape
/// counts then. The rows that it multiplies become codes too (QuantizeRows): x_p, or backward
/// weights.scales_e ∘ x_p for place p of expert e, so that gradients belong to the very weights of
/// forward (design.md "fp8 products"). On CUDA in bf16 on compute capability 9.0 alone, columns in
/// multiples of 16; products that are not backward may keep less exact sums (GemmFp8::fast).
struct ExpertCodes {
    Fp8Rows weights;     ///< as W [E N, K], a scale per row
    Fp8Rows transposed;  ///< of each expert [K, N], so [E K, N]; scales 1
    Fp8Rows rows;        ///< scratch: codes and scales of T k rows of at most `cols` columns
    bool are_used() const { return weights.codes != nullptr; }
    /// Codes of the rows of a matrix, in the scratch.
    Fp8Rows of_rows(std::int64_t count, std::int64_t columns) const {
        return {rows.codes, rows.scales, count, columns, columns};
    }
};

/// A linear of all experts. For the rows x_e and y_e of expert e, in the order of experts:
///   y_e = x_e W_eᵀ + bias_e + added      x: [T k, K], y: [T k, N]
///   y_e = x_e W_e + added       with `backward`; x: [T k, N], y: [T k, K]
/// w: [E N, K], expert by expert, without gaps. x and y do not overlap. The bits of an expert's
/// rows do not depend on other experts. `added` is widen_experts of each element, whose wide are
/// columns of y, before the sums are rounded; of_b without `backward` alone. On CUDA in bf16 one
/// kernel; otherwise a gemm for each expert that has rows, and the host waits for the offsets.
struct ExpertProduct {
    TensorView x;
    TensorView w;
    TensorView y;
    ExpertRoutes routes;
    bool backward = false;
    ExpertLoras added = {};
    ExpertCodes codes = {};
    const float* bias = nullptr;  ///< [E, N], not with `backward`; null: none
};

/// Gate and up of all experts. For each place p, with its row t and expert e:
///   gate_up_p = h_t W_eᵀ + bias_e + added = [g, u]
///   product_p = f(g) u          unless `product` has no data; Activation has another one
/// h: [T, H]; w: [E 2 F, H], each expert's gates before its ups; gate_up: [T k, 2 F]; product:
/// [T k, F]. `rows`: [T k, H], scratch if the backend has no fused kernel (takes_at_once()).
struct ExpertGateUp {
    TensorView h;
    TensorView w;
    TensorView gate_up;
    TensorView product;
    TensorView rows;
    ExpertRoutes routes;
    Activation activation = Activation::silu;
    ExpertLoras added = {};
    ExpertCodes codes = {};
    const float* bias = nullptr;  ///< [E, 2 F], gates' before ups'; null: none
};

/// Gradients of y_t = sum over the experts e of row t of w_te ((f(g) u) W_eᵀ + bias_e). For each
/// place p, with row t, expert e, index j of e among the row's experts, and [g, u] = gate_up_p:
///   inner_p = dy_t W_e + added
///   product_p = f(g) u
///   d_weights[t, j] = inner_p . product_p + dy_t . bias_e       0 in another lane's expert
///   d_gate_up_p = w_te [inner_p u f'(g), inner_p f(g)]
/// dy: [T, H]; w: [E H, F]; gate_up, d_gate_up: [T k, 2 F]; d_weights: [T, k]; product: [T k, F],
/// without data not stored by a fused kernel. Scratch if the backend has none (takes_at_once()):
/// rows [T k, H], inner [T k, F]; `added` goes to inner.
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
    ExpertLoras added = {};
    ExpertCodes codes = {};
    const float* bias = nullptr;  ///< [E, H] of down; null: none
};

/// y_t = added_t + sum over the k experts of row t, in order, of w x_place; w = the route's weight
/// if `weighted`, else 1. x: [T k, H]; y, added: [T, H], may be the same.
struct CombineExperts {
    TensorView y;
    TensorView x;
    TensorView added;
    ExpertRoutes routes;
    bool weighted = false;
};

/// Gradients of the weights in y_t = sum over j of w_j down(product_place). `inner` has dy_t times
/// down's weight at each place:
///   d_weights[t, j] = inner_place . product_place + dy_t . bias_e;  then inner_place *= w_j
/// d_weights is 0 in another lane's expert.
/// inner, product: [T k, F]; d_weights: [T, k]; dy: [T, H], only with `bias`.
struct WeighExperts {
    TensorView inner;
    TensorView product;
    float* d_weights = nullptr;
    ExpertRoutes routes;
    TensorView dy = {};
    const float* bias = nullptr;  ///< [E, H] of down; null: none
};

/// x_place *= the weight of the route, for all T k places. x: [T k, N].
struct WeighRows {
    TensorView x;
    ExpertRoutes routes;
};

/// d_logits = gradient with respect to the logits of Route, from d_weights [T, k], in which it is
/// linear. d_logits: [T, E']. normalised, scores and scale as in Route.
struct RouteBackward {
    TensorView d_logits;
    const float* d_weights = nullptr;
    ExpertRoutes routes;
    bool normalised = false;
    RouterScores scores = RouterScores::softmax;
    float scale = 1.0F;
};

/// Throws Error unless the views of an operator agree in shape.
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
