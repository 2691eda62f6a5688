#pragma once

#include "kernels/activations.h"
#include "kernels/experts.h"
#include "kernels/quantize.h"

/// Products of the rows of all experts of a layer with their weights, in bf16, one launch each
/// (README.md).
///   rows       in the order of experts (Routes). The device knows where an expert's rows
///              are, so the host needs no counts
///   sums       in fp32, in a fixed order: reproducible to the bit
///   weights    as in files: [experts, outputs, inputs] without gaps, from a multiple of 16 bytes
///   on matrices   must satisfy grouped_takes(); else cudaErrorInvalidValue

namespace loratrain::kernels {

/// True for bf16, a multiple of 8 columns, and rows that begin at multiples of 16 bytes.
bool grouped_takes(const Matrix& x);

/// Rows [first, end) of one expert, at most expert_tile_rows.
struct alignas(16) ExpertTile {
    std::int32_t expert;
    std::int32_t first;
    std::int32_t end;
    std::int32_t added;  ///< AddedColumns of the latest pack_expert_factors()
};
static_assert(sizeof(ExpertTile) == expert_tile_bytes);

/// Tables of a layer's routes, in device memory; make_expert_tables() fills them.
struct ExpertTables {
    ExpertTile* tiles = nullptr;       ///< [most_expert_tiles()]; the used ones come first
    std::int32_t* counters = nullptr;  ///< [2]: number of tiles; a counter, 0 between launches
    std::int32_t* entries = nullptr;   ///< [T k], the index in [T, k] of each place of the lane
};

/// Columns of S that the adapters of a tile's rows have: `steps` times added_step from `begin` on.
struct AddedColumns {
    int begin;  ///< a multiple of 8
    int steps;

    static constexpr int step_bits = 8;
    static constexpr int bits = 22;
    static constexpr int most = 1 << (bits - step_bits + 3);  ///< columns of S
    __device__ std::int32_t packed() const { return begin / 8 << step_bits | steps; }
    static __device__ AddedColumns of(std::int32_t packed) {
        return {(packed >> step_bits) * 8, packed & ((1 << step_bits) - 1)};
    }
};
constexpr int added_step = 64;

/// What LoRA adds to the sums of a product before they are finished: s_p F_e, over the columns of s
/// that ExpertTile::added names. Rows of s are 0 in columns of other adapters.
struct ExpertAddition {
    Matrix s;                       ///< [T k, R]; without data nothing is added
    const void* factors = nullptr;  ///< F_e of all experts in bf16 (expert_lora.h)
};

/// e4m3 codes of what a product multiplies: then it reads neither its rows nor its weights in bf16.
/// sums = rows.scales weights.scales (sum of codes), then what is added.
struct ExpertCodes {
    Fp8Codes rows;     ///< for expert_gate_up [T, H], else [T k, length of the sums]
    Fp8Codes weights;  ///< [E sums of a row, their length]; scales null: 1
};

/// What all products of a layer share.
struct ExpertRows {
    Routes routes;
    ExpertTables tables;
    int shared_limit = most_shared_bytes;  ///< sizes.h
};

/// Makes the tables from routes that route() has made.
cudaError_t make_expert_tables(cudaStream_t stream, const ExpertRows& rows);

/// For each place p, with its row t and expert e:
///   gate_up_p = h_t W_eᵀ + bias_e + added = [gate, up]
///   product_p = f(gate) up, from the stored values; unless `product` has no data
/// h: [T, H]; w: [E, 2 F, H], gates before ups; gate_up: [T k, 2 F]; product: [T k, F].
struct ExpertGateUp {
    Matrix h;
    const void* w = nullptr;
    Matrix gate_up;
    Matrix product;
    Gate function = Gate::silu;
    ExpertAddition added = {};  ///< factors: [E, 2 F, R]
    ExpertCodes codes = {};
    const float* bias = nullptr;  ///< [E, 2 F]; null: none
};
cudaError_t expert_gate_up(cudaStream_t stream, const ExpertRows& rows, const ExpertGateUp& op);

/// y_p = x_p W_eᵀ + bias_e + added for each place p and its expert e. w: [E, N, K]; x: [T k, K]; y:
/// [T k, N]; factors: [E, N, R]; bias: [E, N], null: none. With `backward`, which takes no bias,
/// y_p = x_p W_e + added; x: [T k, N]; y: [T k, K]; factors: [E, R, K].
cudaError_t expert_product(cudaStream_t stream, const ExpertRows& rows, const Matrix& x,
                           const void* w, const Matrix& y, bool backward,
                           const ExpertAddition& added = {}, const ExpertCodes& codes = {},
                           const float* bias = nullptr);

/// Gradients of y_t = sum over p of w_p (f(gate_p) up_p) W_eᵀ, with
/// inner_p = dy_t W_e + added in bf16:
///   product_p = f(gate_p) up_p, unless `product` has no data
///   d_weights of p = inner_p . (f(gate_p) up_p)
///   d_gate_up_p = w_p [inner_p up_p f'(gate_p), inner_p f(gate_p)]
/// dy: [T, H]; w: [E, H, F]; gate_up, d_gate_up: [T k, 2 F]; product: [T k, F]; d_weights: [T, k];
/// parts: [T k, ceil(F / expert_part_columns)].
struct ExpertDownBackward {
    Matrix dy;
    const void* w = nullptr;
    Matrix gate_up;
    Matrix d_gate_up;
    Matrix product;
    float* parts = nullptr;  ///< scratch
    float* d_weights = nullptr;
    Gate function = Gate::silu;
    ExpertAddition added = {};  ///< factors: [E, R, F]
    ExpertCodes codes = {};
};
cudaError_t expert_down_backward(cudaStream_t stream, const ExpertRows& rows,
                                 const ExpertDownBackward& op);

/// Codes and scales (quantize_rows()) of column_scales_e ∘ x_p, for each place p of expert e; with
/// `gathered` x is [T, N], and row t is x_p of all its places, else [T k, N]. column_scales: [E,
/// N]; to: [T k, N]. N: a multiple of 16, at most expert_codes_columns.
cudaError_t quantize_expert_rows(cudaStream_t stream, const ExpertRows& rows, const Matrix& x,
                                 bool gathered, const float* column_scales, const Fp8Codes& to);
constexpr std::int64_t expert_codes_columns = 32768;
/// The device has products of codes: sm_90, with all of its shared memory.
bool takes_expert_codes(int shared_limit);

}  // namespace loratrain::kernels
