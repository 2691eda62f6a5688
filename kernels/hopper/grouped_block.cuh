#pragma once

#include "grouped_places.cuh"

/// Products of the rows of experts. A block goes through tiles of 128 rows of one expert and 256
/// sums of each row. One warp copies rows and weights, 64 columns of the summed dimension at a
/// time; two warpgroups multiply, each for 64 of the rows; three warps finish and store the sums,
/// which they find in shared memory, while the next tile is multiplied.

namespace loratrain::kernels::grouped {

/// `codes`: of e4m3 codes, whose sums are scaled before anything is added; a step has 128 of them
/// in the same bytes. `adds`: with ExpertProduct::added.
template <class Finish, bool gathered, bool backward, bool codes, bool adds>
class GroupedBlock : GroupedPlaces {
    using Shape = GroupedShape;
    /// Columns of an own step, and of 16 bytes.
    static constexpr int own_depth = codes ? panel_row_bytes : Shape::depth;
    static constexpr int piece_columns = codes ? 16 : wide;
    static constexpr bool has_prefetch = Finish::finish == ExpertFinish::gate_backward;

  public:
    /// Gradients are not left to the accumulators of products of codes, which keep fewer bits.
    static constexpr bool exact = codes && backward;

    __device__ __forceinline__ GroupedBlock(const HopperProduct& product, std::uint32_t shared)
        : GroupedPlaces(shared),
          product_(product),
          p_(product.p),
          steps_((p_.depth + own_depth - 1) / own_depth) {}

    static __device__ __forceinline__ void make_barriers(std::uint32_t shared) {
        for (int i = 0; i < Shape::stages; ++i) {
            // Each lane arrives behind its copies of gathered rows.
            make_barrier(shared + Shape::filled_at + i * 8, gathered ? 33 : 1);
            make_barrier(shared + Shape::free_at + i * 8, Shape::groups * 4);
        }
        for (int i = 0; i < Shape::groups; ++i) {
            make_barrier(shared + Shape::staged_filled_at + i * 8, 4);
            make_barrier(shared + Shape::staged_free_at + i * 8, Shape::finishing_warps);
        }
    }

    /// Run by the warp that copies; `column_tiles`: of the product.
    __device__ __forceinline__ void copy(int column_tiles) const {
        if constexpr (gathered) {
            copy_gathered(column_tiles);
        } else {
            if (has_prefetch || lane() == 0) copy_boxes(column_tiles);
        }
    }

    __device__ __forceinline__ void multiply(int group, int warp) {
        float sums[128] = {};
        GroupedWalk walk;
        std::uint32_t staged_parity = 1;
        while (true) {
            wait_for(filled(walk.stage), walk.parity);
            const TileWork work = read_work(shared_ + Shape::works_at + walk.stage * 16);
            if (work.first >= 0 && !work.has_group(group)) {
                for (int step = 0; step < steps_of(work); ++step, walk.next()) {
                    wait_for(filled(walk.stage), walk.parity);
                    release(walk.stage);
                }
                continue;
            }
            if (work.first >= 0) sum(sums, walk, work, group, warp);
            wait_for(staged_free(group), staged_parity);
            staged_parity ^= 1U;
            if (work.first >= 0) stage(sums, group, warp);
            if (warp == 0 && lane() == 0) {
                write_work(shared_ + Shape::staged_works_at + group * 16, work);
            }
            __syncwarp();
            if (lane() == 0) arrive(staged_filled(group));
            if (work.first < 0) break;
        }
    }

    __device__ __forceinline__ void finish(int warp) const {
        std::uint32_t parity[Shape::groups] = {};
        while (true) {
#pragma unroll
            for (int group = 0; group < Shape::groups; ++group) {
                wait_for(staged_filled(group), parity[group]);
                parity[group] ^= 1U;
                const TileWork work = read_work(shared_ + Shape::staged_works_at + group * 16);
                if (work.first < 0) return;
                const int first = work.first + group * staged_rows;
                Finish::template run<Shape::finishing_warps>(
                    p_, {shared_ + Shape::staged_at + group * staged_bytes, first,
                         min(staged_rows, work.end - first), work.column_tile, warp, lane()});
                __syncwarp();
                if (lane() == 0) arrive(staged_free(group));
                if (!work.has_group(group + 1)) break;
            }
        }
    }

  private:
    /// Of the product's depth, then of what is added.
    __device__ __forceinline__ int steps_of(const TileWork& work) const {
        return adds ? steps_ + work.added().steps : steps_;
    }

    /// Run by one lane: the number of a tile that no other block has. The last block that finds
    /// none resets the counter.
    __device__ __forceinline__ int draw(int tiles) const {
        const int blocks = static_cast<int>(gridDim.x);
        const int drawn = atomicAdd(p_.drawn, 1);
        if (drawn == max(tiles - blocks, 0) + blocks - 1) *p_.drawn = 0;
        return drawn + blocks;
    }

    /// Tile number `tile`; column tiles of the same rows follow each other.
    __device__ __forceinline__ TileWork work_of(int tile, int tiles, int column_tiles) const {
        if (tile >= tiles) return {-1, -1, 0, 0};
        const int4 at = *reinterpret_cast<const int4*>(p_.tiles + tile / column_tiles);
        const auto added = adds ? static_cast<std::uint32_t>(at.w) : 0;
        return {at.y, at.z, tile % column_tiles,
                static_cast<std::uint32_t>(at.x) | added << TileWork::expert_bits};
    }

    /// Run by one thread: copies the weights of a step, or the factors of one behind the own steps.
    __device__ __forceinline__ void copy_weights(const TileWork& work, int step, int stage) const {
        const std::uint32_t to = weights_of(stage);
        const bool is_own = !adds || step < steps_;
        const CUtensorMap* weights = is_own ? &product_.weights : &product_.factors;
        const int depth = depth_of(work, step);
        if (backward && !(codes && is_own)) {
            constexpr int panel = Shape::depth * panel_row_bytes;
#pragma unroll
            for (int i = 0; i < product_columns / panel_columns; ++i) {
                copy_box(to + i * panel, weights,
                         work.column_tile * product_columns + i * panel_columns, depth,
                         work.expert(), filled(stage));
            }
        } else {
            constexpr bool gate = Finish::finish == ExpertFinish::gate;
            const int begin = work.column_tile * (gate ? gate_columns : product_columns);
            copy_box(to, weights, depth, begin, work.expert(), filled(stage));
            copy_box(to + gate_columns * panel_row_bytes, weights, depth,
                     begin + (gate ? p_.columns : gate_columns), work.expert(), filled(stage));
        }
    }

    /// The first column of a step's rows, of the product's or of s.
    __device__ __forceinline__ int depth_of(const TileWork& work, int step) const {
        return !adds || step < steps_ ? step * own_depth
                                      : work.added().begin + (step - steps_) * Shape::depth;
    }

    /// Run by one thread: copies the rows and weights of a step as boxes.
    __device__ __forceinline__ void copy_boxes_of(const TileWork& work, int step, int stage) const {
        const bool both = work.has_group(1);
        arrive_before_copies(filled(stage),
                             Shape::weights_bytes + (both ? 2 : 1) * Shape::half_bytes);
        const std::uint32_t to = rows_of(stage);
        const CUtensorMap* rows = !adds || step < steps_ ? &product_.rows : &product_.s;
        const int depth = depth_of(work, step);
        copy_box(to, rows, depth, work.first, 0, filled(stage));
        if (both) {
            copy_box(to + Shape::half_bytes, rows, depth, work.first + staged_rows, 0,
                     filled(stage));
        }
        copy_weights(work, step, stage);
    }

    __device__ __forceinline__ void copy_boxes(int column_tiles) const {
        const int tiles = *p_.tile_count * column_tiles;
        GroupedWalk walk;
        TileWork work = work_of(static_cast<int>(blockIdx.x), tiles, column_tiles);
        int tile = draw_of_copying(tiles);
        while (work.first >= 0) {
            const TileWork next = work_of(tile, tiles, column_tiles);
            if (tile < tiles) tile = draw_of_copying(tiles);
            if constexpr (has_prefetch) prefetch(work);
            const int steps = steps_of(work);
            for (int step = 0; step < steps; ++step, walk.next()) {
                wait_for(free(walk.stage), walk.parity ^ 1U);
                if (has_prefetch && lane() > 0) continue;
                if (step == 0) write_work(shared_ + Shape::works_at + walk.stage * 16, work);
                copy_boxes_of(work, step, walk.stage);
            }
            work = next;
        }
        wait_for(free(walk.stage), walk.parity ^ 1U);
        if (has_prefetch && lane() > 0) return;
        write_work(shared_ + Shape::works_at + walk.stage * 16, work);
        arrive(filled(walk.stage));
    }

    /// draw() by the lanes that copy boxes: all of the warp if it has more to do, else one.
    __device__ __forceinline__ int draw_of_copying(int tiles) const {
        if constexpr (!has_prefetch) return draw(tiles);
        __syncwarp();
        return __shfl_sync(0xffffffffU, lane() == 0 ? draw(tiles) : 0, 0);
    }

    /// A lane copies 16 bytes of rows `lane / 8` + 4 i of a tile.
    static constexpr int pieces = panel_columns / wide;
    static constexpr int rows_at_once = 32 / pieces;
    static constexpr int rows_of_lane = expert_tile_rows / rows_at_once;
    static constexpr int indices_of_lane = expert_tile_rows / 32;

    /// The rows of `a` for rows `lane` + 32 i of a tile; 0 behind the last.
    struct Indices {
        std::int32_t of[indices_of_lane];
    };
    __device__ __forceinline__ Indices indices_of(const TileWork& work) const {
        Indices indices;
#pragma unroll
        for (int i = 0; i < indices_of_lane; ++i) {
            const int row = work.first + lane() + i * 32;
            indices.of[i] = row < work.end ? p_.a_rows[row] : 0;
        }
        return indices;
    }

    __device__ __forceinline__ void copy_gathered(int column_tiles) const {
        const int tiles = *p_.tile_count * column_tiles;
        const int piece = lane() % pieces;
        const int first_row = lane() / pieces;
        const std::uint32_t even = panel_offset(first_row, piece);
        const std::uint32_t odd = panel_offset(first_row + rows_at_once, piece);
        const std::int64_t ld = codes ? p_.codes.rows.ld : p_.a.ld;
        const char* from = codes ? reinterpret_cast<const char*>(p_.codes.rows.codes)
                                 : static_cast<const char*>(p_.a.data);
        const auto row_pieces = static_cast<std::uint32_t>(ld / piece_columns);
        GroupedWalk walk;
        TileWork work = work_of(static_cast<int>(blockIdx.x), tiles, column_tiles);
        int tile = lane() == 0 ? draw(tiles) : 0;
        Indices indices = indices_of(work);
        while (work.first >= 0) {
            tile = __shfl_sync(0xffffffffU, tile, 0);
            const TileWork next = work_of(tile, tiles, column_tiles);
            if (lane() == 0 && tile < tiles) tile = draw(tiles);
            std::uint32_t sources[rows_of_lane];  ///< in pieces of 16 bytes
#pragma unroll
            for (int i = 0; i < rows_of_lane; ++i) {
                const int row = i * rows_at_once;
                sources[i] = row_pieces * __shfl_sync(0xffffffffU, indices.of[row / 32],
                                                      row % 32 + first_row) +
                             piece;
            }
            const int count = work.end - work.first;
            if constexpr (Finish::finish == ExpertFinish::gate_backward) prefetch(work);
            for (int step = 0; step < steps_; ++step, walk.next()) {
                if (step == steps_ / 2) indices = indices_of(next);
                wait_for(free(walk.stage), walk.parity ^ 1U);
                if (lane() == 0) {
                    if (step == 0) write_work(shared_ + Shape::works_at + walk.stage * 16, work);
                    arrive_before_copies(filled(walk.stage), Shape::weights_bytes);
                    copy_weights(work, step, walk.stage);
                }
                __syncwarp();
                const int column = step * own_depth;
                copy_rows(sources, from + step * panel_row_bytes, walk.stage, even, odd, count,
                          column + piece * piece_columns < p_.depth ? 16 : 0);
                arrive_behind_pieces(filled(walk.stage));
            }
            if constexpr (adds) {
                for (int step = steps_; step < steps_of(work); ++step, walk.next()) {
                    wait_for(free(walk.stage), walk.parity ^ 1U);
                    if (lane() == 0) copy_boxes_of(work, step, walk.stage);
                    __syncwarp();
                    arrive(filled(walk.stage));
                }
            }
            work = next;
        }
        wait_for(free(walk.stage), walk.parity ^ 1U);
        if (lane() == 0) {
            write_work(shared_ + Shape::works_at + walk.stage * 16, work);
            arrive(filled(walk.stage));
        }
        __syncwarp();
        arrive(filled(walk.stage));
    }

    /// The lane's pieces of `count` rows of a stage, and of some behind them, whose sums nobody
    /// stores: a condition for each row would take longer. `from`: row 0 at the step's first
    /// column.
    __device__ __forceinline__ void copy_rows(const std::uint32_t (&sources)[rows_of_lane],
                                              const char* from, int stage, std::uint32_t even,
                                              std::uint32_t odd, int count, int bytes) const {
        const std::uint32_t to = rows_of(stage);
#pragma unroll
        for (int i = 0; i < rows_of_lane; ++i) {
            if (i % 8 == 0 && i * rows_at_once >= count) break;
            copy_16_async(
                to + (i % 2 == 0 ? even : odd) + i / 2 * 2 * rows_at_once * panel_row_bytes,
                from + std::uint64_t{sources[i]} * 16, bytes);
        }
    }

    /// Brings what is read after the products to the L2 while they run.
    __device__ __forceinline__ void prefetch(const TileWork& work) const {
        constexpr int line = 64;
        const int column = work.column_tile * product_columns;
        for (int row = work.first + lane(); row < work.end; row += 32) {
            const Bf16* from = place(p_.gate_up, row, column);
#pragma unroll
            for (int i = 0; i < product_columns / line; ++i) {
                if (column + i * line >= p_.columns) break;
                asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from + i * line));
                asm volatile("prefetch.global.L2 [%0];\n" ::"l"(from + p_.columns + i * line));
            }
        }
    }

    /// The sums of a group's 64 rows of a tile.
    __device__ __forceinline__ void sum(float (&sums)[128], GroupedWalk& walk, const TileWork& work,
                                        int group, int warp) const {
        if constexpr (codes) {
            sum_codes<true>(sums, walk, group, steps_, false);
            scale(sums, work, group, warp);
            if (adds && work.added().steps > 0) {
                sum_codes<false>(sums, walk, group, work.added().steps, true);
            }
        } else {
            sum_steps<false>(sums, walk, group, steps_of(work), false);
        }
        if constexpr (Finish::biased) add_bias(sums, work);
    }

    /// Steps of codes, or those added to them.
    template <bool of_codes>
    __device__ __forceinline__ void sum_codes(float (&sums)[128], GroupedWalk& walk, int group,
                                              int steps, bool add) const {
        if constexpr (exact) {
            sum_exactly<of_codes>(sums, walk, group, steps, add);
        } else {
            sum_steps<of_codes>(sums, walk, group, steps, add);
        }
    }

    /// Each step is added in fp32 to those before, half of the columns at a time.
    template <bool of_codes>
    __device__ __forceinline__ void sum_exactly(float (&sums)[128], GroupedWalk& walk, int group,
                                                int steps, bool add) const {
        for (int step = 0; step < steps; ++step, walk.next()) {
            wait_for(filled(walk.stage), walk.parity);
            const std::uint32_t a = panel_operand(rows_of(walk.stage) + group * Shape::half_bytes);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const std::uint32_t b =
                    weights_of(walk.stage) + half * gate_columns * panel_row_bytes;
                float part[64];
                begin_products();
                multiply_half<of_codes>(part, a, b);
                commit_products();
                wait_for_products<0>();
                use_products(part);
                if (half == 1) release(walk.stage);
#pragma unroll
                for (int i = 0; i < 64; ++i) {
                    const int at = half * 64 + i;
                    sums[at] = add || step > 0 ? sums[at] + part[i] : part[i];
                }
            }
        }
    }

    /// A step of half of the columns, whose weights begin at `weights`.
    template <bool of_codes>
    static __device__ __forceinline__ void multiply_half(float (&part)[64], std::uint32_t a,
                                                         std::uint32_t weights) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            if constexpr (of_codes) {
                multiply_code_rows(part, a + k * 2, panel_operand(weights) + k * 2, k > 0);
            } else {
                multiply_columns(
                    part, a + k * 2,
                    panel_operand(weights, Shape::depth * panel_row_bytes) + k * panel_row_bytes,
                    k > 0);
            }
        }
    }

    template <bool of_codes>
    __device__ __forceinline__ void sum_steps(float (&sums)[128], GroupedWalk& walk, int group,
                                              int steps, bool add) const {
        int before = 0;
        use_products(sums);
        for (int step = 0; step < steps; ++step) {
            wait_for(filled(walk.stage), walk.parity);
            if constexpr (gathered) show_to_products();
            begin_products();
            const std::uint32_t a = panel_operand(rows_of(walk.stage) + group * Shape::half_bytes);
            if constexpr (of_codes) {
                const std::uint32_t b = panel_operand(weights_of(walk.stage));
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    multiply_code_rows(sums, a + k * 2, b + k * 2, step > 0 || k > 0);
                }
            } else if constexpr (backward) {
                const std::uint32_t b =
                    panel_operand(weights_of(walk.stage), Shape::depth * panel_row_bytes);
#pragma unroll
                for (int k = 0; k < Shape::depth / 16; ++k) {
                    multiply_columns(sums, a + k * 2, b + k * panel_row_bytes,
                                     add || step > 0 || k > 0);
                }
            } else {
                const std::uint32_t b = panel_operand(weights_of(walk.stage));
#pragma unroll
                for (int k = 0; k < Shape::depth / 16; ++k) {
                    multiply_rows(sums, a + k * 2, b + k * 2, add || step > 0 || k > 0);
                }
            }
            commit_products();
            if (step > 0) {
                wait_for_products<1>();
                release(before);
            }
            before = walk.stage;
            walk.next();
        }
        wait_for_products<0>();
        use_products(sums);
        release(before);
    }

    /// Sums of codes times the scales of their rows and of the weights' rows.
    __device__ __forceinline__ void scale(float (&sums)[128], const TileWork& work, int group,
                                          int warp) const {
        float of_rows[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = work.first + group * staged_rows + warp * 16 + i * 8 + lane() / 4;
            const int at = row < work.end ? row : work.first;
            of_rows[i] = p_.codes.rows.scales[gathered ? p_.a_rows[at] : at];
        }
        const float* of_weights = p_.codes.weights.scales;
        constexpr bool gate = Finish::finish == ExpertFinish::gate;
        const std::int64_t sums_of_row = gate ? 2 * p_.columns : p_.columns;
        const int begin = work.column_tile * (gate ? gate_columns : product_columns);
#pragma unroll
        for (int k = 0; k < product_columns / 8; ++k) {
            constexpr int half = gate_columns / 8;
            const int column = begin + (gate ? k % half : k) * 8 + lane() % 4 * 2;
            float2 w = make_float2(1.0F, 1.0F);
            if (of_weights != nullptr && column < p_.columns) {
                const int up = gate && k >= half ? p_.columns : 0;
                w = *reinterpret_cast<const float2*>(of_weights + work.expert() * sums_of_row + up +
                                                     column);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                sums[4 * k + 2 * i] *= of_rows[i] * w.x;
                sums[4 * k + 2 * i + 1] *= of_rows[i] * w.y;
            }
        }
    }

    __device__ __forceinline__ void add_bias(float (&sums)[128], const TileWork& work) const {
        constexpr bool gate = Finish::finish == ExpertFinish::gate;
        const std::int64_t sums_of_row = gate ? 2 * p_.columns : p_.columns;
        const float* of_expert = p_.bias + work.expert() * sums_of_row;
        const int begin = work.column_tile * (gate ? gate_columns : product_columns);
#pragma unroll
        for (int k = 0; k < product_columns / 8; ++k) {
            constexpr int half = gate_columns / 8;
            const int column = begin + (gate ? k % half : k) * 8 + lane() % 4 * 2;
            if (column >= p_.columns) continue;
            const int up = gate && k >= half ? p_.columns : 0;
            const float2 bias = *reinterpret_cast<const float2*>(of_expert + up + column);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                sums[4 * k + 2 * i] += bias.x;
                sums[4 * k + 2 * i + 1] += bias.y;
            }
        }
    }

    /// Stores a warp's 16 rows of sums in shared memory.
    __device__ __forceinline__ void stage(const float (&sums)[128], int group, int warp) const {
        const std::uint32_t to = shared_ + Shape::staged_at + group * staged_bytes +
                                 (warp * 16 + (lane() & 15)) * staged_pitch + (lane() >> 4) * 16;
#pragma unroll
        for (int k = 0; k < product_columns / 16; ++k) {
            std::uint32_t pairs[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                pairs[i] = pack_halves(sums[8 * k + 2 * i], sums[8 * k + 2 * i + 1]);
            }
            store_fragments(to + k * 32, pairs);
        }
    }

    const HopperProduct& product_;
    const ExpertProduct& p_;
    int steps_;
};

}  // namespace loratrain::kernels::grouped
