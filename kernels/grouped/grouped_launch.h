#pragma once

#include "grouped.h"

namespace loratrain::kernels {

/// What the launchers of grouped.cu, kernels/hopper/grouped.cu and grouped_tensor.cu share.

/// What a kernel does with its sums.
enum class ExpertFinish : std::uint8_t {
    store,          ///< stores them
    gate,           ///< stores them as gates and ups, and the product
    gate_backward,  ///< they are inner of ExpertDownBackward; stores d_gate_up, product and parts
};

/// A product of all experts: sums_p = a_p W_eᵀ, or with `backward` a_p W_e.
struct ExpertProduct {
    Matrix a;
    const std::int32_t* a_rows = nullptr;  ///< the row of `a` for each place; null = the place
    const void* w = nullptr;               ///< [experts, outputs, inputs]
    std::int64_t experts = 0;
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
    bool backward = false;
    ExpertFinish finish = ExpertFinish::store;
    Gate function = Gate::silu;
    std::int64_t rows = 0;
    std::int32_t depth = 0;    ///< length of the sums
    std::int32_t columns = 0;  ///< number of sums of a row; for `gate` of gates alone
    Matrix y;                  ///< sums, gate_up or d_gate_up
    Matrix product;            ///< for `gate` and `gate_backward`; may have no data
    Matrix gate_up;            ///< for `gate_backward`
    const float* weights = nullptr;
    const std::int32_t* entries = nullptr;
    float* parts = nullptr;
    const ExpertTile* tiles = nullptr;
    const std::int32_t* tile_count = nullptr;
    std::int32_t* drawn = nullptr;  ///< counter of tiles taken; 0 between launches
    ExpertAddition added;
    /// With them `a` and `w` are not read; codes.rows.rows lie as those of `a` do.
    ExpertCodes codes;
    const float* bias = nullptr;  ///< [experts, sums of a row], not with `backward`; null: none
    bool of_codes() const { return codes.rows.codes != nullptr; }
};

constexpr int product_columns = expert_part_columns;  ///< sums of a row that a block makes at once
constexpr int gate_columns = product_columns / 2;

inline std::int32_t column_tiles(const ExpertProduct& p) {
    const int columns = p.finish == ExpertFinish::gate ? gate_columns : product_columns;
    return (p.columns + columns - 1) / columns;
}

cudaError_t expert_product_hopper(cudaStream_t stream, const ExpertProduct& p);
/// Products of codes.
cudaError_t expert_code_product_hopper(cudaStream_t stream, const ExpertProduct& p);
cudaError_t expert_product_tensor(cudaStream_t stream, const ExpertProduct& p);

/// True if the device runs the product of kernels/hopper with `shared_limit` bytes of shared
/// memory.
bool runs_expert_product_hopper(int shared_limit);

}  // namespace loratrain::kernels
