#pragma once

#include "kernels/experts.h"
#include "kernels/swiglu.h"

/// Products of the rows of all experts of a layer with their weights, in bf16, one launch each
/// (README.md). Rows are in the order of experts (Routes). Where an expert's rows are is read on
/// the device: the host needs no counts. Sums in fp32, in one order: two runs are equal to the bit.
/// Weights lie as in files: [experts, outputs, inputs], one behind the other, from a multiple of 16
/// bytes on. All matrices are what grouped_takes() tells; else cudaErrorInvalidValue.

namespace loratrain::kernels {

/// In bf16, columns a multiple of 8, rows from multiples of 16 bytes on.
bool grouped_takes(const Matrix& x);

/// Rows [first, end) of one expert, at most expert_tile_rows.
struct alignas(16) ExpertTile {
    std::int32_t expert;
    std::int32_t first;
    std::int32_t end;
    std::int32_t unused;
};
static_assert(sizeof(ExpertTile) == expert_tile_bytes);

/// Of a layer's routes, on the device; make_expert_tables() fills all of it.
struct ExpertTables {
    ExpertTile* tiles = nullptr;       ///< [most_expert_tiles()], those that there are come first
    std::int32_t* counters = nullptr;  ///< [2], how many there are, and 0 between launches
    std::int32_t* entries = nullptr;   ///< [T k], of each row which of [T, k] it is
};

/// What the products of a layer have in common.
struct ExpertRows {
    Routes routes;
    ExpertTables tables;
    int shared_limit = most_shared_bytes;  ///< sizes.h
};

/// Of routes that are made.
cudaError_t make_expert_tables(cudaStream_t stream, const ExpertRows& rows);

/// gate_up_p = h_t Wᵀ of the row's expert, p a row of token t; product_p = f(gate_p) up_p of what
/// is stored. h: [T, H]; w: [E, 2 F, H], gates before ups; gate_up: [T k, 2 F]; product: [T k, F],
/// not made where it has no data.
struct ExpertGateUp {
    Matrix h;
    const void* w = nullptr;
    Matrix gate_up;
    Matrix product;
    Gate function = Gate::silu;
};
cudaError_t expert_gate_up(cudaStream_t stream, const ExpertRows& rows, const ExpertGateUp& op);

/// y_p = x_p Wᵀ of the row's expert, or with `backward` y_p = x_p W. w: [E, N, K]; x and y: [T k,
/// K] and [T k, N], or the other way round.
cudaError_t expert_product(cudaStream_t stream, const ExpertRows& rows, const Matrix& x,
                           const void* w, const Matrix& y, bool backward);

/// Of y_t = sum of w_p down_p, with inner_p = dy_t W in bf16:
///   d_weights of p = inner_p . f(gate_p) up_p, d_gate_up_p = gradient of w_p inner_p . f(gate_p)
///   up_p
/// dy: [T, H]; w: [E, H, F]; gate_up, d_gate_up: [T k, 2 F]; d_weights: [T, k];
/// parts: [T k, ceil(F / expert_part_columns)].
struct ExpertDownBackward {
    Matrix dy;
    const void* w = nullptr;
    Matrix gate_up;
    Matrix d_gate_up;
    float* parts = nullptr;  ///< scratch
    float* d_weights = nullptr;
    Gate function = Gate::silu;
};
cudaError_t expert_down_backward(cudaStream_t stream, const ExpertRows& rows,
                                 const ExpertDownBackward& op);

}  // namespace loratrain::kernels
