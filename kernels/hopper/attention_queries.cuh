#pragma once

#include "attention_block.cuh"

namespace loratrain::kernels::warpgroup {

/// dQ of 64 queries for each group, for the heads that share keys, one head after another; the keys
/// that the queries see stream by.
template <class Shape>
class QuerySums {
    static constexpr int dim = Shape::dim;
    static constexpr int stages = Shape::stages;

  public:
    /// `block`: number of the block, which gives its tile and key-value head.
    __device__ __forceinline__ QuerySums(const AttentionBackwardParams& p, int block,
                                         std::uint32_t shared)
        : p_(p), shared_(shared) {
        const AttentionParams& forward = p.forward;
        tile_ = p.query_tiles[block / forward.kv_heads];
        kv_head_ = block % forward.kv_heads;
        group_ = forward.heads / forward.kv_heads;
        first_ = first_key_tile(tile_.begin, forward.sliding_window, streamed_rows);
        const int end = min(tile_.begin + resident_rows, tile_.length);
        steps_ = (end - first_ + streamed_rows - 1) / streamed_rows;
    }

    __device__ __forceinline__ void copy(int thread) const {
        StageWalk<stages> at;
        int copied = 0;
        for (int of_group = 0; of_group < group_; ++of_group) {
            const int head = kv_head_ * group_ + of_group;
            if (of_group > 0) wait_for(shared_ + Shape::resident_free_at, (of_group & 1) ^ 1);
            const std::uint32_t target = shared_ + Shape::resident_at;
            load_panels<dim, resident_rows, copying_threads>(
                target, head_rows(p_.forward.q, tile_, head, p_.forward.head_dim), tile_.begin,
                thread);
            load_panels<dim, resident_rows, copying_threads>(
                target + Shape::resident_bytes, head_rows(p_.d_o, tile_, head, p_.forward.head_dim),
                tile_.begin, thread);
            finish_copies(shared_ + Shape::resident_filled_at);
            for (int step = 0; step < steps_; ++step, ++copied) {
                if (copied >= stages) {
                    wait_for(free_barrier<Shape>(shared_, at.stage), at.parity ^ 1U);
                }
                copy_keys(first_tile<Shape>(shared_, at.stage), first_ + step * streamed_rows,
                          thread);
                finish_copies(filled_barrier<Shape>(shared_, at.stage));
                at.next();
            }
        }
    }

    __device__ __forceinline__ void multiply() {
        StageWalk<stages> at;
        for (int of_group = 0; of_group < group_; ++of_group) {
            const int head = kv_head_ * group_ + of_group;
            load_rows(head, of_group & 1);
            sum_head(at);
            store_rows(dq_, p_.forward.scale,
                       shared_ + Shape::output_at + place_.group * Shape::output_bytes +
                           place_.warp * 16 * panel_row_bytes,
                       head_rows(p_.dq, tile_, head, p_.forward.head_dim),
                       tile_.begin + place_.group * group_rows + place_.warp * 16);
        }
    }

  private:
    __device__ __forceinline__ void copy_keys(std::uint32_t target, int begin, int thread) const {
        load_panels<dim, streamed_rows, copying_threads>(
            target, head_rows(p_.forward.k, tile_, kv_head_, p_.forward.head_dim), begin, thread);
        load_panels<dim, streamed_rows, copying_threads>(
            target + Shape::streamed_bytes,
            head_rows(p_.forward.v, tile_, kv_head_, p_.forward.head_dim), begin, thread);
    }
    __device__ __forceinline__ std::uint32_t keys(int stage) const {
        return first_tile<Shape>(shared_, stage);
    }
    __device__ __forceinline__ std::uint32_t values(int stage) const {
        return second_tile<Shape>(shared_, stage);
    }

    /// Loads this warp's 16 queries and their output's gradients into registers.
    __device__ __forceinline__ void load_rows(int head, std::uint32_t parity) {
        const int lane = lane_number();
        const int row = tile_.begin + place_.group * group_rows + place_.warp * 16 + (lane >> 2);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            stats_[half] =
                row + half * 8 < tile_.length
                    ? p_.row_stats[head * p_.forward.q.rows + tile_.first + row + half * 8]
                    : float2{0.0F, 0.0F};
        }
        wait_for(shared_ + Shape::resident_filled_at, parity);
        const std::uint32_t from = shared_ + Shape::resident_at +
                                   (place_.group * group_rows + place_.warp * 16) * panel_row_bytes;
        warpgroup::load_rows<Shape::resident_panel>(q_, from);
        warpgroup::load_rows<Shape::resident_panel>(d_o_, from + Shape::resident_bytes);
        __syncwarp();
        if (lane == 0) arrive(shared_ + Shape::resident_free_at);
    }

    __device__ __forceinline__ void await_score_gradients(int begin) {
        wait_for_products<1>();
        use_products(s_);
        hide_keys(s_, tile_.begin + place_.group * group_rows - begin, place_.warp,
                  p_.forward.sliding_window);
        turn_to_probabilities(s_, stats_, p_.forward.scale * log2_e);
        wait_for_products<0>();
        use_products(ds_);
        turn_to_score_gradients(ds_, s_, stats_);
        round_to(a_, ds_);
    }

    /// dq_ of one head. The first group skips the last keys, which it does not see.
    __device__ __forceinline__ void sum_head(StageWalk<stages>& at) {
        const int diagonal = (tile_.begin + place_.group * group_rows - first_) / streamed_rows;
        const int own_steps = min(steps_, diagonal + 1);
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) dq_[i] = 0.0F;
        wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
        use_products(dq_);
        begin_products();
        start_scores(s_, q_, keys(at.stage));
        start_scores(ds_, d_o_, values(at.stage));
        await_score_gradients(first_);
        for (int step = 0; step < own_steps; ++step) {
            const int stage = at.stage;
            const bool more = step + 1 < own_steps;
            begin_products();
            start_sums(dq_, a_, keys(stage));
            if (more) {
                at.next();
                wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
            }
            begin_products();
            start_scores(s_, q_, keys(at.stage));
            start_scores(ds_, d_o_, values(at.stage));
            wait_for_products<2>();
            if (more && lane_number() == 0) arrive(free_barrier<Shape>(shared_, stage));
            await_score_gradients(first_ + (step + 1) * streamed_rows);
        }
        use_products(dq_);
        __syncwarp();
        for (int step = own_steps; step <= steps_; ++step) {
            if (lane_number() == 0) arrive(free_barrier<Shape>(shared_, at.stage));
            at.next();
            if (step < steps_) wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
        }
    }

    const AttentionBackwardParams& p_;
    std::uint32_t shared_;
    Place place_;
    AttentionTile tile_;
    int kv_head_;
    int group_;
    int first_;
    int steps_;
    float2 stats_[2];
    std::uint32_t q_[dim / 4];
    std::uint32_t d_o_[dim / 4];
    float dq_[dim / 2];
    float s_[32];
    float ds_[32];
    std::uint32_t a_[16];  ///< gradients of scores, rounded
};

}  // namespace loratrain::kernels::warpgroup
