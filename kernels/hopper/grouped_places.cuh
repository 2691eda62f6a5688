#pragma once

#include <cuda.h>

#include "kernels/attention_tile.cuh"
#include "kernels/grouped/grouped_finish.cuh"
#include "kernels/tensor_core.cuh"
#include "warpgroup.cuh"

/// What a block of grouped_block.cuh works on: operands, tiles, and its places in shared memory.

namespace loratrain::kernels::grouped {

/// The product, and how its operands lie, in panels of 64 rows and 64 columns.
struct HopperProduct {
    ExpertProduct p;
    CUtensorMap rows;     ///< boxes of 64 x 64; not used if rows are gathered
    CUtensorMap weights;  ///< forward 128 outputs, backward 64 outputs, of 64 columns; of codes
                          ///< 128 rows of 128 columns
    /// Of ExpertProduct::added: s as `rows`, factors as `weights`.
    CUtensorMap s;
    CUtensorMap factors;
};

struct GroupedShape {
    static constexpr int groups = 2;  ///< warpgroups that multiply
    static constexpr int threads = (1 + groups) * warpgroup_threads;
    static constexpr int finishing_warps = 3;
    static constexpr int depth = panel_columns;
    static constexpr int stages = 3;
    static constexpr int half_bytes = staged_rows * panel_row_bytes;  ///< 64 of the tile's rows
    static constexpr int rows_bytes = groups * half_bytes;
    static constexpr int weights_bytes = product_columns * panel_row_bytes;
    static constexpr int stage_bytes = rows_bytes + weights_bytes;

    /// Shared memory, from a multiple of 1024 on. Barriers are 8 bytes each.
    static constexpr int staged_at = stages * stage_bytes;
    static constexpr int works_at = staged_at + groups * staged_bytes;  ///< of stages
    static constexpr int staged_works_at = works_at + stages * 16;
    static constexpr int filled_at = staged_works_at + groups * 16;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int staged_filled_at = free_at + stages * 8;
    static constexpr int staged_free_at = staged_filled_at + groups * 8;
    static constexpr int shared_bytes = staged_free_at + groups * 8;
    static_assert(shared_bytes <= most_shared_bytes);
};

/// Registers per thread, from those with which a block starts. `exact`: of products that keep sums
/// of a step beside the others.
template <bool exact>
struct GroupedRegisters {
    static constexpr int copying = exact ? 96 : 152;
    static constexpr int multiplying = exact ? 200 : 176;
    static_assert(copying + GroupedShape::groups * multiplying <=
                  65536 / GroupedShape::threads / 8 * 8 * (1 + GroupedShape::groups));
};

/// Rows and column tile of a block's next tile; `first` is negative behind the last tile.
struct TileWork {
    int first;
    int end;
    int column_tile;
    std::uint32_t of_tile;  ///< the expert; AddedColumns above

    static constexpr int expert_bits = 32 - AddedColumns::bits;
    static_assert(1 << expert_bits >= most_experts);
    __device__ __forceinline__ int expert() const {
        return static_cast<int>(of_tile & ((1U << expert_bits) - 1));
    }
    __device__ __forceinline__ AddedColumns added() const {
        return AddedColumns::of(static_cast<std::int32_t>(of_tile >> expert_bits));
    }
    __device__ __forceinline__ bool has_group(int group) const {
        return end - first > group * staged_rows;
    }
};

__device__ __forceinline__ void write_work(std::uint32_t at, const TileWork& work) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(at), "r"(work.first),
                 "r"(work.end), "r"(work.column_tile), "r"(work.of_tile)
                 : "memory");
}
__device__ __forceinline__ TileWork read_work(std::uint32_t at) {
    TileWork work;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(work.first), "=r"(work.end), "=r"(work.column_tile), "=r"(work.of_tile)
                 : "r"(at));
    return work;
}

/// The next stage, and the parity of its barriers.
struct GroupedWalk {
    int stage = 0;
    std::uint32_t parity = 0;

    __device__ __forceinline__ void next() {
        if (++stage == GroupedShape::stages) {
            stage = 0;
            parity ^= 1U;
        }
    }
};

/// Addresses in a block's shared memory, which begins at `shared`.
class GroupedPlaces {
  protected:
    using Shape = GroupedShape;

    __device__ __forceinline__ explicit GroupedPlaces(std::uint32_t shared) : shared_(shared) {}

    static __device__ __forceinline__ int lane() {
        int lane = 0;
        asm volatile("mov.u32 %0, %laneid;\n" : "=r"(lane));
        return lane;
    }
    __device__ __forceinline__ std::uint32_t filled(int stage) const {
        return shared_ + Shape::filled_at + stage * 8;
    }
    __device__ __forceinline__ std::uint32_t free(int stage) const {
        return shared_ + Shape::free_at + stage * 8;
    }
    __device__ __forceinline__ std::uint32_t staged_filled(int group) const {
        return shared_ + Shape::staged_filled_at + group * 8;
    }
    __device__ __forceinline__ std::uint32_t staged_free(int group) const {
        return shared_ + Shape::staged_free_at + group * 8;
    }
    __device__ __forceinline__ std::uint32_t rows_of(int stage) const {
        return shared_ + stage * Shape::stage_bytes;
    }
    __device__ __forceinline__ std::uint32_t weights_of(int stage) const {
        return rows_of(stage) + Shape::rows_bytes;
    }
    __device__ __forceinline__ void release(int stage) const {
        if (lane() == 0) arrive(free(stage));
    }

    std::uint32_t shared_;
};

}  // namespace loratrain::kernels::grouped
