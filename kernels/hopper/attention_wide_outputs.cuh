#pragma once

#include "attention_outputs.cuh"

namespace loratrain::kernels::warpgroup {

/// Sizes for wide heads, of up to `head_columns` columns. A stage is one tile, of keys or of
/// values: each is free as soon as its own products are done.
template <int head_columns>
struct WideOutputShape {
    static constexpr int dim = head_columns;
    static constexpr int groups = 2;
    static constexpr int multiplying_warps = 4 * groups;
    static constexpr int threads = copying_threads + 32 * multiplying_warps;
    static constexpr int resident_rows = groups * group_rows;
    static constexpr int stages = dim <= 192 ? 6 : 4;
    static constexpr int panels = dim / panel_columns;

    static constexpr int resident_panel = resident_rows * panel_row_bytes;
    static constexpr int resident_bytes = panels * resident_panel;
    static constexpr int streamed_bytes = panels * streamed_panel;
    static constexpr int stage_bytes = streamed_bytes;

    /// Shared memory, from a multiple of 1024 on.
    static constexpr int stages_at = resident_bytes;
    static constexpr int output_at = stages_at + stages * stage_bytes;
    static constexpr int filled_at = output_at + groups * streamed_panel;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int resident_free_at = free_at + stages * 8;
    static constexpr int shared_bytes = resident_free_at + 8;
    static_assert(shared_bytes <= most_shared_bytes);
};

/// QueryOutputs of wide heads: sums leave no registers for queries, so products read those from
/// shared memory.
template <class Shape, bool sinks>
class WideOutputs : QueryOutputs<Shape, sinks> {
    using Base = QueryOutputs<Shape, sinks>;
    using Base::dim;
    using Base::first_;
    using Base::head_;
    using Base::o_;
    using Base::p_;
    using Base::place_;
    using Base::s_;
    using Base::shared_;
    using Base::steps_;
    using Base::tile_;
    /// Of a step, which has stages 2 * stage and 2 * stage + 1.
    using Walk = StageWalk<Shape::stages / 2>;

  public:
    __device__ __forceinline__ WideOutputs(const AttentionParams& p, std::uint32_t shared)
        : Base(p, shared) {}

    __device__ __forceinline__ void copy(int thread) {
        Walk at;
        bool again = false;  ///< the stages were filled before
        for (int turn = 0; Base::take_tile(turn); ++turn) {
            const int kv_head = head_ / (p_.heads / p_.kv_heads);
            if (turn > 0) wait_for(shared_ + Shape::resident_free_at, (turn & 1) ^ 1);
            load_wide_panels<dim, Shape::resident_rows, copying_threads>(
                shared_, head_rows(p_.q, tile_, head_, p_.head_dim), tile_.begin, thread);
            for (int step = 0; step < steps_; ++step) {
                copy_tile(head_rows(p_.k, tile_, kv_head, p_.head_dim), step, 2 * at.stage,
                          at.parity, again, thread);
                copy_tile(head_rows(p_.v, tile_, kv_head, p_.head_dim), step, 2 * at.stage + 1,
                          at.parity, again, thread);
                at.next();
                again = again || at.stage == 0;
            }
        }
        wait_for_copies();
    }

    __device__ __forceinline__ void multiply() {
        Walk at;
        for (int turn = 0; Base::take_tile(turn); ++turn) {
            const StepRange own =
                steps_of_queries(tile_, Base::first_query(), first_, p_.sliding_window);
            // A group without queries must not leave a tile before the other has come to it.
            await(2 * at.stage, at.parity);
            leave(at, 0, own.begin);
            if (own.end > own.begin) sum(at, own);
            __syncwarp();
            if (lane_number() == 0) arrive(shared_ + Shape::resident_free_at);
            if (own.end > own.begin) store();
            leave(at, own.end, steps_);
        }
    }

  private:
    __device__ __forceinline__ void copy_tile(const HeadRows& from, int step, int stage,
                                              std::uint32_t parity, bool again, int thread) const {
        if (again) wait_for(free_barrier<Shape>(shared_, stage), parity ^ 1U);
        load_wide_panels<dim, streamed_rows, copying_threads>(
            first_tile<Shape>(shared_, stage), from, first_ + step * streamed_rows, thread);
        arrive_behind_pieces(filled_barrier<Shape>(shared_, stage));
    }

    __device__ __forceinline__ void await(int stage, std::uint32_t parity) const {
        wait_for(filled_barrier<Shape>(shared_, stage), parity);
    }
    /// Passes over steps that only the other group needs.
    __device__ __forceinline__ void leave(Walk& at, int begin, int end) const {
        for (int step = begin; step < end; ++step) {
            for (int stage = 2 * at.stage; stage < 2 * at.stage + 2; ++stage) {
                await(stage, at.parity);
                Base::release(stage);
            }
            at.next();
        }
    }

    __device__ __forceinline__ void start_wide_scores(int stage) {
        start_scores<dim, Shape::resident_panel>(
            s_, shared_ + place_.group * group_rows * panel_row_bytes,
            first_tile<Shape>(shared_, stage));
    }

    __device__ __forceinline__ void sum(Walk& at, const StepRange& own) {
#pragma unroll
        for (int i = 0; i < dim / 2; ++i) o_[i] = 0.0F;
        Base::base_[0] = Base::base_[1] = -INFINITY;
        Base::sum_[0] = Base::sum_[1] = 0.0F;
        await(2 * at.stage, at.parity);
        show_to_products();
        begin_products();
        start_wide_scores(2 * at.stage);
        wait_for_products<0>();
        use_products(s_);
        Base::release(2 * at.stage);
        Base::find_probabilities(first_ + own.begin * streamed_rows);
        round_to(Base::a_, s_);
        for (int step = own.begin + 1; step < own.end; ++step) {
            const int values = 2 * at.stage + 1;
            await(values, at.parity);
            at.next();
            const int keys = 2 * at.stage;
            await(keys, at.parity);
            show_to_products();
            use_products(o_);
            begin_products();
            start_wide_scores(keys);
            start_sums(o_, Base::a_, first_tile<Shape>(shared_, values));
            wait_for_products<1>();
            use_products(s_);
            const bool moves = Base::find_probabilities(first_ + step * streamed_rows);
            use_products(s_);
            // Known to be filled: exponentials stay above this wait, as in QueryOutputs.
            await(keys, at.parity);
            Base::release(keys);
            wait_for_products<0>();
            use_products(o_);
            Base::release(values);
            if (moves) Base::rescale();
            round_to(Base::a_, s_);
        }
        await(2 * at.stage + 1, at.parity);
        show_to_products();
        use_products(o_);
        begin_products();
        start_sums(o_, Base::a_, first_tile<Shape>(shared_, 2 * at.stage + 1));
        wait_for_products<0>();
        use_products(o_);
        Base::release(2 * at.stage + 1);
        at.next();
    }

    __device__ __forceinline__ void store() {
        const int first = Base::first_query() + place_.warp * 16;
        Base::finish_sums(first);
        store_panels(o_, 1.0F,
                     shared_ + Shape::output_at + place_.group * streamed_panel +
                         place_.warp * 16 * panel_row_bytes,
                     head_rows(p_.o, tile_, head_, p_.head_dim), first);
    }
};

}  // namespace loratrain::kernels::warpgroup
