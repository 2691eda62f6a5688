#pragma once

#include <cstdint>
#include <span>

#include "backend/ops/lora.h"
#include "base/tensor_view.h"

namespace loratrain {

/// To which k of E experts each of T rows goes, and the T k rows in the order of experts: of one
/// expert after another, in each as they come. Backend memory but for host_offsets.
struct ExpertRoutes {
    std::int64_t tokens = 0;
    std::int64_t experts = 0;
    std::int64_t per_token = 0;
    float* probabilities = nullptr;        ///< [T, E]
    float* weights = nullptr;              ///< [T, k]
    std::int32_t* chosen = nullptr;        ///< [T, k], ascending
    std::int32_t* places = nullptr;        ///< [T, k], where the row is in the order of experts
    std::int32_t* rows = nullptr;          ///< [T k], which row each of these is
    std::int32_t* offsets = nullptr;       ///< [E + 1], first row of each expert
    std::int32_t* host_offsets = nullptr;  ///< the same [host]
    std::int64_t copies() const { return tokens * per_token; }
    /// Of an expert, its rows in that order.
    std::int64_t first(std::int64_t expert) const { return host_offsets[expert]; }
    std::int64_t count(std::int64_t expert) const { return first(expert + 1) - first(expert); }
};

/// Makes the routes: probabilities p = softmax of the logits in fp32, the k largest of a row (the
/// first of equals), weights = p of these, with `normalised` divided by their sum, rounded to
/// compute_dtype(). logits: [T, E]. On CUDA the host waits for host_offsets.
struct Route {
    TensorView logits;
    ExpertRoutes to;
    bool normalised = false;
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
void check_shapes(const CombineExperts& op);
void check_shapes(const WeighExperts& op);
void check_shapes(const WeighRows& op);
void check_shapes(const ExpertLora& op);
void check_shapes(const RouteBackward& op);

}  // namespace loratrain
