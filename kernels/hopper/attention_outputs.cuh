#pragma once

#include "attention_block.cuh"

namespace loratrain::kernels::warpgroup {

/// Sizes for heads of up to `head_columns` columns; 64 queries for each warpgroup that multiplies.
template <int head_columns, int group_count>
struct OutputShape {
    static constexpr int dim = head_columns;
    static constexpr int groups = group_count;
    static constexpr int multiplying_warps = 4 * groups;
    static constexpr int threads = copying_threads + 32 * multiplying_warps;
    static constexpr int resident_rows = groups * group_rows;
    static constexpr int stages = 4;
    static constexpr int panels = dim / panel_columns;

    static constexpr int resident_panel = resident_rows * panel_row_bytes;
    static constexpr int resident_bytes = panels * resident_panel;
    static constexpr int streamed_bytes = panels * streamed_panel;
    static constexpr int stage_bytes = 2 * streamed_bytes;

    /// Shared memory, from a multiple of 1024 on.
    static constexpr int stages_at = resident_bytes;
    static constexpr int output_at = stages_at + stages * stage_bytes;
    static constexpr int filled_at = output_at + groups * streamed_bytes;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int resident_free_at = free_at + stages * 8;
    static constexpr int shared_bytes = resident_free_at + 8;
    static_assert(shared_bytes <= most_shared_bytes);
};

/// Outputs of 64 queries for each group; the keys and values that the queries see stream by.
/// Exponents are of scores less a base. The base follows the largest score only if that is larger
/// by more than 8 in units of log 2: bf16 and sums in fp32 have room for it, and earlier sums are
/// seldom rescaled. A block takes one tile of a head after another, so that the rows of the next
/// tile are copied while this tile is multiplied. `sinks`: with AttentionParams::sinks.
template <class Shape, bool sinks>
class QueryOutputs {
  protected:
    static constexpr int dim = Shape::dim;
    static constexpr int stages = Shape::stages;
    static constexpr float most_ahead = 8.0F;

  public:
    __device__ __forceinline__ QueryOutputs(const AttentionParams& p, std::uint32_t shared)
        : p_(p), shared_(shared) {}

    __device__ __forceinline__ void copy(int thread) {
        StageWalk<stages> at;
        int copied = 0;
        for (int turn = 0; take_tile(turn); ++turn) {
            if (turn > 0) wait_for(shared_ + Shape::resident_free_at, (turn & 1) ^ 1);
            load_panels<dim, Shape::resident_rows, copying_threads>(
                shared_, head_rows(p_.q, tile_, head_, p_.head_dim), tile_.begin, thread);
            for (int step = 0; step < steps_; ++step, ++copied) {
                if (copied >= stages) {
                    wait_for(free_barrier<Shape>(shared_, at.stage), at.parity ^ 1U);
                }
                copy_keys(first_tile<Shape>(shared_, at.stage), first_ + step * streamed_rows,
                          thread);
                if (step > 0) finish<1>(copied - 1);
                at.next();
            }
            finish<0>(copied - 1);
        }
    }

    __device__ __forceinline__ void multiply() {
        StageWalk<stages> at;
        for (int turn = 0; take_tile(turn); ++turn) {
            const StepRange own = steps_of_queries(tile_, first_query(), first_, p_.sliding_window);
            wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
            load_queries();
            leave(at, 0, own.begin);
            if (own.end > own.begin) {
                sum(at, own);
                store();
            }
            leave(at, own.end, steps_);
        }
    }

  protected:
    /// The block's tile and head in turn `turn`, if there is one. Tiles come with most work first,
    /// and every second turn goes through the blocks in reverse order, so that blocks have about
    /// equal work.
    __device__ __forceinline__ bool take_tile(int turn) {
        const auto blocks = static_cast<int>(gridDim.x);
        const auto block = static_cast<int>(blockIdx.x);
        const int at = turn * blocks + ((turn & 1) == 0 ? block : blocks - 1 - block);
        if (at >= p_.tile_count * p_.heads) return false;
        tile_ = p_.tiles[at / p_.heads];
        head_ = at % p_.heads;
        first_ = first_key_tile(tile_.begin, p_.sliding_window, streamed_rows);
        const int end = min(tile_.begin + Shape::resident_rows, tile_.length);
        steps_ = (end - first_ + streamed_rows - 1) / streamed_rows;
        return true;
    }
    __device__ __forceinline__ int first_query() const {
        return tile_.begin + place_.group * group_rows;
    }

    __device__ __forceinline__ void copy_keys(std::uint32_t target, int begin, int thread) const {
        const int kv_head = head_ / (p_.heads / p_.kv_heads);
        load_panels<dim, streamed_rows, copying_threads>(
            target, head_rows(p_.k, tile_, kv_head, p_.head_dim), begin, thread);
        load_panels<dim, streamed_rows, copying_threads>(
            target + Shape::streamed_bytes, head_rows(p_.v, tile_, kv_head, p_.head_dim), begin,
            thread);
        commit_copies();
    }
    /// Waits for the keys and values of a step; those of `later` further steps may be under way.
    template <int later>
    __device__ __forceinline__ void finish(int step) const {
        wait_for_pieces<later>();
        show_to_products();
        arrive(filled_barrier<Shape>(shared_, step % stages));
    }

    __device__ __forceinline__ void load_queries() {
        load_rows<Shape::resident_panel>(
            q_, shared_ + (place_.group * group_rows + place_.warp * 16) * panel_row_bytes);
        __syncwarp();
        if (lane_number() == 0) arrive(shared_ + Shape::resident_free_at);
    }

    __device__ __forceinline__ void release(int stage) const {
        if (lane_number() == 0) arrive(free_barrier<Shape>(shared_, stage));
    }
    /// Passes over steps that only the other group needs.
    __device__ __forceinline__ void leave(StageWalk<stages>& at, int begin, int end) const {
        for (int step = begin; step < end; ++step) {
            wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
            release(at.stage);
            at.next();
        }
    }

    /// Turns scores into probabilities. Returns true if earlier sums need `correction_`.
    __device__ __forceinline__ bool find_probabilities(int begin) {
        hide_keys(s_, first_query() - begin, place_.warp, p_.sliding_window);
        const float scale = p_.scale * log2_e;
        float largest[2] = {s_[0], s_[2]};
#pragma unroll
        for (int i = 1; i < 32; ++i) {
            largest[(i >> 1) & 1] = fmaxf(largest[(i >> 1) & 1], s_[i]);
        }
        bool moves[2];
        float shift[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = largest[half];
            most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffU, most, 2)) * scale;
            moves[half] = most > base_[half] + most_ahead;
            correction_[half] = 1.0F;
            if (moves[half]) {
                correction_[half] = exp2_fast(base_[half] - most);
                base_[half] = most;
                sum_[half] *= correction_[half];
            }
            // No key seen yet: all probabilities are 0.
            shift[half] = base_[half] == -INFINITY ? 0.0F : base_[half];
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            s_[i] = exp2_fast(fmaf(s_[i], scale, -shift[(i >> 1) & 1]));
            sum_[(i >> 1) & 1] += s_[i];
        }
        return __any_sync(0xffffffffU, moves[0] || moves[1]) != 0;
    }
    __device__ __forceinline__ void rescale() {
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) o_[i] *= correction_[(i >> 1) & 1];
    }

    __device__ __forceinline__ void sum(StageWalk<stages>& at, const StepRange& own) {
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) o_[i] = 0.0F;
        base_[0] = base_[1] = -INFINITY;
        sum_[0] = sum_[1] = 0.0F;
        wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
        begin_products();
        start_scores(s_, q_, first_tile<Shape>(shared_, at.stage));
        wait_for_products<0>();
        use_products(s_);
        find_probabilities(first_ + own.begin * streamed_rows);
        round_to(a_, s_);
        for (int step = own.begin + 1; step < own.end; ++step) {
            const int stage = at.stage;
            at.next();
            wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
            use_products(o_);
            begin_products();
            start_scores(s_, q_, first_tile<Shape>(shared_, at.stage));
            start_sums(o_, a_, second_tile<Shape>(shared_, stage));
            wait_for_products<1>();
            use_products(s_);
            const bool moves = find_probabilities(first_ + step * streamed_rows);
            use_products(s_);
            // Known to be filled. The compiler lets no exponentials sink below this wait; it does
            // below the next one, which then waits for products that they should run beside.
            wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
            wait_for_products<0>();
            use_products(o_);
            release(stage);
            if (moves) rescale();
            round_to(a_, s_);
        }
        use_products(o_);
        begin_products();
        start_sums(o_, a_, second_tile<Shape>(shared_, at.stage));
        wait_for_products<0>();
        use_products(o_);
        release(at.stage);
        at.next();
    }

    /// Makes outputs of the sums; stores lse.
    __device__ __forceinline__ void finish_sums(int first) {
        const int lane = lane_number();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float sum = quad_sum(sum_[half]);
            float base = base_[half] * (1.0F / log2_e);
            correction_[half] = 1.0F;
            if constexpr (sinks) correction_[half] = add_sink(p_.sinks[head_], base, sum);
            correction_[half] /= sum;
            const int row = first + half * 8 + (lane >> 2);
            if ((lane & 3) == 0 && row < tile_.length) {
                p_.lse[static_cast<std::int64_t>(tile_.first + row) * p_.heads + head_] =
                    base + logf(sum);
            }
        }
        rescale();
    }
    __device__ __forceinline__ void store() {
        const int first = first_query() + place_.warp * 16;
        finish_sums(first);
        store_rows(o_, 1.0F,
                   shared_ + Shape::output_at + place_.group * Shape::streamed_bytes +
                       place_.warp * 16 * panel_row_bytes,
                   head_rows(p_.o, tile_, head_, p_.head_dim), first);
    }

    const AttentionParams& p_;
    std::uint32_t shared_;
    Place place_;
    AttentionTile tile_;
    int head_;
    int first_;
    int steps_;
    float base_[2];  ///< of exponents, in units of log 2
    float sum_[2];
    float correction_[2];
    std::uint32_t q_[dim / 4];
    float o_[dim / 2];
    float s_[32];
    std::uint32_t a_[16];  ///< probabilities, rounded
};

}  // namespace loratrain::kernels::warpgroup
