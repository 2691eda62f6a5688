#pragma once

#include "attention_block.cuh"

namespace loratrain::kernels::warpgroup {

/// Sizes of WideQuerySums for heads of up to `head_columns` columns. Stage 2 has values, stages 0
/// and 1 keys in turn: those of a step are needed until its sums, values for a shorter time.
template <int head_columns>
struct WideQueryShape {
    static constexpr int dim = head_columns;
    static constexpr int stages = 3;
    static constexpr int values = 2;
    static constexpr int multiplying_warps = multiplying_threads / 32;

    static constexpr int resident_panel = resident_rows * panel_row_bytes;
    static constexpr int resident_bytes = dim / panel_columns * resident_panel;
    static constexpr int stage_bytes = dim / panel_columns * streamed_panel;

    /// Shared memory, from a multiple of 1024 on: queries, their outputs' gradients, stages.
    static constexpr int stages_at = 2 * resident_bytes;
    static constexpr int filled_at = stages_at + stages * stage_bytes;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int shared_bytes = free_at + stages * 8;
    static_assert(shared_bytes <= most_shared_bytes);
};

/// dQ of 64 queries of one head for each group; the keys that the queries see stream by.
template <class Shape>
class WideQuerySums {
    static constexpr int dim = Shape::dim;
    using Walk = StageWalk<2>;

  public:
    __device__ __forceinline__ WideQuerySums(const AttentionBackwardParams& p, int block,
                                             std::uint32_t shared)
        : p_(p), shared_(shared) {
        const AttentionParams& forward = p.forward;
        tile_ = p.query_tiles[block / forward.heads];
        head_ = block % forward.heads;
        first_ = first_key_tile(tile_.begin, forward.sliding_window, streamed_rows);
        const int end = min(tile_.begin + resident_rows, tile_.length);
        steps_ = (end - first_ + streamed_rows - 1) / streamed_rows;
    }

    static __device__ __forceinline__ void make_barriers(std::uint32_t shared) {
        make_stage_barriers<Shape>(shared);
    }

    __device__ __forceinline__ void copy(int thread) const {
        const AttentionParams& forward = p_.forward;
        const int kv_head = head_ / (forward.heads / forward.kv_heads);
        const HeadRows keys = head_rows(forward.k, tile_, kv_head, forward.head_dim);
        const HeadRows values = head_rows(forward.v, tile_, kv_head, forward.head_dim);
        load_wide_panels<dim, resident_rows, copying_threads>(
            shared_, head_rows(forward.q, tile_, head_, forward.head_dim), tile_.begin, thread);
        copy_tile(keys, 0, 0, thread);
        load_wide_panels<dim, resident_rows, copying_threads>(
            shared_ + Shape::resident_bytes, head_rows(p_.d_o, tile_, head_, forward.head_dim),
            tile_.begin, thread);
        copy_tile(values, 0, Shape::values, thread);
        Walk at;
        for (int step = 1; step < steps_; ++step) {
            at.next();
            if (step >= 2) wait_for(free_barrier<Shape>(shared_, at.stage), at.parity ^ 1U);
            copy_tile(keys, step, at.stage, thread);
            wait_for(free_barrier<Shape>(shared_, Shape::values), (step - 1) & 1);
            copy_tile(values, step, Shape::values, thread);
        }
        wait_for_copies();
    }

    __device__ __forceinline__ void multiply() {
        const StepRange own =
            steps_of_queries(tile_, first_query(), first_, p_.forward.sliding_window);
        leave(0, own.begin);
        if (own.end > own.begin) {
            sum(own);
            store();
        }
        leave(own.end, steps_);
    }

  private:
    __device__ __forceinline__ int first_query() const {
        return tile_.begin + place_.group * group_rows;
    }
    __device__ __forceinline__ void copy_tile(const HeadRows& from, int step, int stage,
                                              int thread) const {
        load_wide_panels<dim, streamed_rows, copying_threads>(
            first_tile<Shape>(shared_, stage), from, first_ + step * streamed_rows, thread);
        arrive_behind_pieces(filled_barrier<Shape>(shared_, stage));
    }

    __device__ __forceinline__ void await_keys(int step) const {
        wait_for(filled_barrier<Shape>(shared_, step & 1), (step >> 1) & 1);
        show_to_products();
    }
    __device__ __forceinline__ void await_values(int step) const {
        wait_for(filled_barrier<Shape>(shared_, Shape::values), step & 1);
        show_to_products();
    }
    __device__ __forceinline__ void release(int stage) const {
        if (lane_number() == 0) arrive(free_barrier<Shape>(shared_, stage));
    }
    /// Passes over steps that only the other group needs.
    __device__ __forceinline__ void leave(int begin, int end) const {
        for (int step = begin; step < end; ++step) {
            await_keys(step);
            release(step & 1);
            await_values(step);
            release(Shape::values);
        }
    }

    __device__ __forceinline__ std::uint32_t own_rows(int which) const {
        return shared_ + which * Shape::resident_bytes +
               place_.group * group_rows * panel_row_bytes;
    }
    __device__ __forceinline__ void start_step(int step) {
        await_keys(step);
        begin_products();
        start_scores<dim, Shape::resident_panel>(s_, own_rows(0),
                                                 first_tile<Shape>(shared_, step & 1));
        await_values(step);
        begin_products();
        start_scores<dim, Shape::resident_panel>(ds_, own_rows(1),
                                                 first_tile<Shape>(shared_, Shape::values));
    }
    /// Ends with gradients of scores, rounded, and the stage of values free.
    __device__ __forceinline__ void await_score_gradients(int step) {
        wait_for_products<1>();
        use_products(s_);
        hide_keys(s_, first_query() - first_ - step * streamed_rows, place_.warp,
                  p_.forward.sliding_window);
        turn_to_probabilities(s_, stats_, p_.forward.scale * log2_e);
        wait_for_products<0>();
        use_products(ds_);
        release(Shape::values);
        turn_to_score_gradients(ds_, s_, stats_);
        round_to(a_, ds_);
    }

    __device__ __forceinline__ void sum(const StepRange& own) {
        const int row = first_query() + place_.warp * 16 + (lane_number() >> 2);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            stats_[half] =
                row + half * 8 < tile_.length
                    ? p_.row_stats[head_ * p_.forward.q.rows + tile_.first + row + half * 8]
                    : float2{0.0F, 0.0F};
        }
        start_step(own.begin);
        await_score_gradients(own.begin);
        for (int step = own.begin; step + 1 < own.end; ++step) {
            use_products(dq_);
            begin_products();
            start_sums(dq_, a_, first_tile<Shape>(shared_, step & 1));
            start_step(step + 1);
            wait_for_products<2>();
            use_products(dq_);
            release(step & 1);
            await_score_gradients(step + 1);
        }
        use_products(dq_);
        begin_products();
        start_sums(dq_, a_, first_tile<Shape>(shared_, (own.end - 1) & 1));
        wait_for_products<0>();
        use_products(dq_);
        release((own.end - 1) & 1);
    }

    /// Through the group's own queries, once no warp's products read them any more.
    __device__ __forceinline__ void store() const {
        if (place_.group == 0) {
            meet<1, warpgroup_threads>();
        } else {
            meet<2, warpgroup_threads>();
        }
        store_panels(dq_, p_.forward.scale, own_rows(0) + place_.warp * 16 * panel_row_bytes,
                     head_rows(p_.dq, tile_, head_, p_.forward.head_dim),
                     first_query() + place_.warp * 16);
    }

    const AttentionBackwardParams& p_;
    std::uint32_t shared_;
    Place place_;
    AttentionTile tile_;
    int head_;
    int first_;
    int steps_;
    float2 stats_[2];
    float dq_[dim / 2] = {};
    float s_[32];
    float ds_[32];
    std::uint32_t a_[16];  ///< gradients of scores, rounded
};

}  // namespace loratrain::kernels::warpgroup
