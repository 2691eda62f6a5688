#pragma once

#include "grouped_launch.h"
#include "kernels/gate.cuh"
#include "kernels/launch.cuh"

/// Finishes 64 rows of 256 sums of one expert, which lie in shared memory in bf16; a warp takes one
/// row after another. Rows are 16 bytes longer than their sums, so that 16 bytes of 8 rows are in
/// different banks.

namespace loratrain::kernels::grouped {

constexpr int staged_rows = 64;
constexpr int staged_pitch = product_columns * 2 + 16;
constexpr int staged_bytes = staged_rows * staged_pitch;

__device__ __forceinline__ uint4 staged_piece(std::uint32_t staged, int row, int piece) {
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(staged + row * staged_pitch + piece * 16));
    return value;
}

__device__ __forceinline__ void unpack(const uint4& piece, float (&v)[wide]) {
    load<wide>(reinterpret_cast<const Bf16*>(&piece), v);
}

__device__ __forceinline__ uint4 packed(const float (&v)[wide]) {
    return make_uint4(pack_halves(v[0], v[1]), pack_halves(v[2], v[3]), pack_halves(v[4], v[5]),
                      pack_halves(v[6], v[7]));
}

__device__ __forceinline__ Bf16* place(const Matrix& x, std::int64_t row, int column) {
    return static_cast<Bf16*>(x.data) + row * x.ld + column;
}

/// The rows to finish: `count` (<= 64) from `first` on, their column tile, and number `warp` of
/// `warps`.
struct StagedRows {
    std::uint32_t staged;
    int first;
    int count;
    int column_tile;
    int warp;
    int lane;
};

/// `biased`: with ExpertProduct::bias, which kernels add before they round the sums.
template <bool with_bias>
struct StoreSums {
    static constexpr ExpertFinish finish = ExpertFinish::store;
    static constexpr bool biased = with_bias;

    template <int warps>
    static __device__ __forceinline__ void run(const ExpertProduct& p, const StagedRows& rows) {
        const int column = rows.column_tile * product_columns + rows.lane * wide;
        if (column >= p.columns) return;
        Bf16* to = place(p.y, rows.first + rows.warp, column);
        const std::int64_t stride = warps * p.y.ld;
#pragma unroll 4
        for (int row = rows.warp; row < rows.count; row += warps) {
            store_at_once(to, staged_piece(rows.staged, row, rows.lane));
            to += stride;
        }
    }
};

template <class Function, bool with_bias>
struct GateSums {
    static constexpr ExpertFinish finish = ExpertFinish::gate;
    static constexpr bool biased = with_bias;

    template <int warps>
    static __device__ __forceinline__ void run(const ExpertProduct& p, const StagedRows& rows) {
        constexpr int half = gate_columns / wide;
        const int piece = rows.lane % half;
        const int column = rows.column_tile * gate_columns + piece * wide;
        if (column >= p.columns) return;
#pragma unroll 2
        for (int row = rows.warp * 2 + rows.lane / half; row < rows.count; row += 2 * warps) {
            const uint4 gate = staged_piece(rows.staged, row, piece);
            const uint4 up = staged_piece(rows.staged, row, piece + half);
            Bf16* to = place(p.y, rows.first + row, column);
            store_at_once(to, gate);
            store_at_once(to + p.columns, up);
            if (p.product.data == nullptr) continue;
            float g[wide];
            float u[wide];
            unpack(gate, g);
            unpack(up, u);
            product<Bf16, Function, wide>(g, u);
            store_at_once(place(p.product, rows.first + row, column), packed(g));
        }
    }
};

template <class Function>
struct GateGradients {
    static constexpr ExpertFinish finish = ExpertFinish::gate_backward;
    static constexpr bool biased = false;

    template <int warps>
    static __device__ __forceinline__ void run(const ExpertProduct& p, const StagedRows& rows) {
        constexpr int at_once = 4;
        constexpr int own_rows = (staged_rows + warps - 1) / warps;
        const int column = rows.column_tile * product_columns + rows.lane * wide;
        const bool inside = column < p.columns;
        const std::int32_t tiles = (p.columns + product_columns - 1) / product_columns;
        // Lane i has the weight of the warp's i-th row.
        const int of_lane = rows.lane * warps + rows.warp;
        float weight = 0.0F;
        if (rows.lane < own_rows && of_lane < rows.count) {
            weight = p.weights[p.entries[rows.first + of_lane]];
        }
        for (int i = 0; i < own_rows; i += at_once) {
            if (i * warps + rows.warp >= rows.count) break;
            uint4 gate[at_once];
            uint4 up[at_once];
#pragma unroll
            for (int j = 0; j < at_once; ++j) {
                const int row = (i + j) * warps + rows.warp;
                gate[j] = up[j] = make_uint4(0, 0, 0, 0);
                if (row >= rows.count || !inside) continue;
                const Bf16* from = place(p.gate_up, rows.first + row, column);
                gate[j] = *reinterpret_cast<const uint4*>(from);
                up[j] = *reinterpret_cast<const uint4*>(from + p.columns);
            }
#pragma unroll
            for (int j = 0; j < at_once; ++j) {
                const int row = (i + j) * warps + rows.warp;
                if (row >= rows.count) break;
                const float w = __shfl_sync(0xffffffffU, weight, i + j);
                const float sum =
                    warp_sum(finish_row(p, rows, row, column, inside, w, gate[j], up[j]));
                if (rows.lane == 0) {
                    p.parts[std::int64_t{rows.first + row} * tiles + rows.column_tile] = sum;
                }
            }
        }
    }

  private:
    /// Finishes a lane's columns of a row; returns their part of the weight's gradient.
    static __device__ __forceinline__ float finish_row(const ExpertProduct& p,
                                                       const StagedRows& rows, int row, int column,
                                                       bool inside, float weight, const uint4& gate,
                                                       const uint4& up) {
        float g[wide];
        float u[wide];
        float inner[wide];
        float d[wide];
        unpack(gate, g);
        unpack(up, u);
        unpack(staged_piece(rows.staged, row, rows.lane), inner);
#pragma unroll
        for (int i = 0; i < wide; ++i) d[i] = weight * inner[i];
        gradients<Bf16, Function, wide>(g, u, d);
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < wide; ++i) sum = fmaf(inner[i], u[i], sum);
        if (!inside) return 0.0F;
        Bf16* to = place(p.y, rows.first + row, column);
        store_at_once(to, packed(g));
        store_at_once(to + p.columns, packed(d));
        if (p.product.data != nullptr) {
            store_at_once(place(p.product, rows.first + row, column), packed(u));
        }
        return sum;
    }
};

/// Calls launch(GateSums<Silu, false>{}), or launch with another finish, as the product says.
template <class Launch>
cudaError_t with_finish(const ExpertProduct& p, const Launch& launch) {
    const bool biased = p.bias != nullptr;
    if (p.finish == ExpertFinish::store) {
        return biased ? launch(StoreSums<true>{}) : launch(StoreSums<false>{});
    }
    return with_expert_function(p.function, [&](auto of) {
        using Function = decltype(of);
        if (p.finish == ExpertFinish::gate_backward) return launch(GateGradients<Function>{});
        return biased ? launch(GateSums<Function, true>{}) : launch(GateSums<Function, false>{});
    });
}

}  // namespace loratrain::kernels::grouped
