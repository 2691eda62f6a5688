#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/arithmetic.h"
#include "plan/replica_view.h"

namespace loratrain {

/// Where a rank has the frozen weights, and LoRA's columns beside them (memory_model.h). Bytes
/// unless a name says columns; e = bytes of the compute type.

/// Linears of a LinearGroup share one matrix (design.md "One augmented matrix").
struct LinearGroupShape {
    std::array<Linear, most_group_linears> linears{};
    int count = 0;         ///< linears in the group
    std::int64_t in = 0;   ///< K
    std::int64_t out = 0;  ///< sum of N over the group

    std::span<const Linear> list() const {
        return {linears.data(), static_cast<std::size_t>(count)};
    }
};
/// Of the layers that have it; of a layer: nothing where the layer does not.
LinearGroupShape group_shape(const ModelSpec& model, LinearGroup group);
LinearGroupShape group_shape(const ModelSpec& model, std::int64_t layer, LinearGroup group);
/// Calls use(linear, LinearShape, first row) for each linear of a group, with its rows in the
/// group's matrix.
template <class Use>
void for_linears(const ModelSpec& model, const LinearGroupShape& group, const Use& use) {
    std::int64_t row = 0;
    for (const Linear linear : group.list()) {
        const LinearShape shape = linear_shape(model, linear);
        use(linear, shape, row);
        row += shape.out;
    }
}
/// What LoRA may be on in a group: its linears, or those in experts.
std::vector<Linear> group_targets(const ModelSpec& model, LinearGroup group);

/// LoRA columns that make a product no longer: one step of a GEMM kernel along its inner dimension.
inline constexpr std::int32_t free_columns = 64;
/// LoRA columns of matrices are a multiple of 16.
std::int32_t padded_columns(std::int32_t columns);

std::uint64_t compute_bytes(const Plan& plan);  ///< e

/// The format of the linears of the layers: the model's quantisation, else as all other weights.
WeightFormat linear_format(const Plan& plan);

/// True when no GEMM reads the linears as they are stored: they are widened into a shared scratch
/// matrix at each use (bf16 storage on the CPU, quantised weights).
bool weights_are_staged(const Plan& plan);
/// The same of the head.
bool head_is_staged(const Plan& plan);

/// Blocks of R columns that a group has of S behind its X, and of B in its augmented matrix: one
/// per linear where their forward products are joined (ReplicaPlan::joined), else 1.
std::int64_t column_blocks(const ReplicaView& view, LinearGroup group);
/// A group's augmented matrix: (N + count R) x (K + column_blocks R).
MatrixShape augmented_shape(const ReplicaView& view, LinearGroup group);
/// What is stored of it: all, or where weights are staged W alone, N x K.
MatrixShape stored_shape(const ReplicaView& view, LinearGroup group);
/// Its codes and scales.
WeightLayout stored_layout(const ReplicaView& view, LinearGroup group);
/// Where a group has its parts with Plan::fp8_linears, offsets in bytes: e4m3 codes of W [N, K],
/// the same codes transposed [K, N] (but with Plan::fp8_one_order), a scale per row [N] fp32, and
/// in compute type the factors of LoRA: B [N, R] and A [linears of the group x R, K].
struct Fp8GroupLayout {
    std::uint64_t codes = 0;
    std::uint64_t transposed = 0;
    std::uint64_t scales = 0;
    std::uint64_t b_pad = 0;
    std::uint64_t a_pad = 0;
    std::uint64_t bytes = 0;
};
Fp8GroupLayout fp8_group_layout(const ReplicaView& view, LinearGroup group);
/// Of one or the other, in a layer that has the group.
std::uint64_t group_bytes(const ReplicaView& view, LinearGroup group);
/// fp32 ones, the scales of transposed codes: for the widest group and all experts of a layer.
std::uint64_t unit_scale_bytes(const ReplicaView& view);

/// The experts of a layer, expert by expert: gate and up [2 F, H], down [H, F]. In the format of
/// linears, without pads.
MatrixShape experts_gate_up_shape(const ExpertSpec& experts, std::int64_t hidden_size);
MatrixShape experts_down_shape(const ExpertSpec& experts, std::int64_t hidden_size);
WeightLayout experts_layout(const Plan& plan, const MatrixShape& shape);
/// With Plan::fp8_linears, offsets in bytes: e4m3 codes [E N, K], the same transposed for each
/// expert [E K, N] (with Plan::fp8_one_order too), a scale per row [E N] fp32.
struct Fp8ExpertsLayout {
    std::uint64_t codes = 0;
    std::uint64_t transposed = 0;
    std::uint64_t scales = 0;
    std::uint64_t bytes = 0;
};
Fp8ExpertsLayout fp8_experts_layout(const MatrixShape& shape);
/// Of one or the other.
std::uint64_t experts_bytes(const Plan& plan, const MatrixShape& shape);

/// The embedding, and the head.
MatrixShape vocabulary_shape(const ModelSpec& model);
std::uint64_t vocabulary_bytes(const ReplicaView& view);

/// So many elements, as buffers are aligned.
inline std::uint64_t aligned_array(std::int64_t elements, std::uint64_t element_bytes) {
    return aligned(static_cast<std::uint64_t>(elements) * element_bytes);
}

/// What a stage keeps of them: with its layers' norms and biases, and where layers stream their
/// buffers.
std::uint64_t frozen_bytes(const ReplicaView& view, const StagePlan& stage);

}  // namespace loratrain
