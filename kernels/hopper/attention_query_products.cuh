#pragma once

#include "attention_block.cuh"
#include "kernels/tensor_core.cuh"

namespace loratrain::kernels::warpgroup {

/// Sizes for heads of up to `head_columns` columns; each group that multiplies has 64 queries of
/// two heads.
template <int head_columns>
struct ProductShape {
    static constexpr int dim = head_columns;
    static constexpr int heads = 2;
    static constexpr int stages = 4;
    static constexpr int multiplying_warps = multiplying_threads / 32;

    static constexpr int keys_bytes = dim / panel_columns * streamed_panel;
    static constexpr int stage_bytes = keys_bytes + groups * heads * scores_bytes;

    /// Shared memory, from a multiple of 1024 on.
    static constexpr int output_at = stages * stage_bytes;
    static constexpr int filled_at = output_at + groups * keys_bytes;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int shared_bytes = free_at + stages * 8;
    static_assert(shared_bytes <= most_shared_bytes);

    static __host__ __device__ constexpr int blocks_of_tile(int group_heads) {
        return (group_heads + heads - 1) / heads;
    }
    static __device__ __forceinline__ std::uint32_t keys(std::uint32_t shared, int stage) {
        return shared + stage * stage_bytes;
    }
    static __device__ __forceinline__ std::uint32_t scores(std::uint32_t shared, int stage,
                                                           int group, int head) {
        return keys(shared, stage) + keys_bytes + (head * groups + group) * scores_bytes;
    }
};

/// dQ = dS K of 128 queries of two heads that share keys, from the gradients of scores that KeySums
/// has stored; the keys that the queries see stream by.
template <class Shape>
class QueryProducts {
    static constexpr int dim = Shape::dim;
    static constexpr int stages = Shape::stages;

  public:
    __device__ __forceinline__ QueryProducts(const AttentionBackwardParams& p, const KvHeads& of,
                                             int block, std::uint32_t shared)
        : p_(p), shared_(shared) {
        const AttentionParams& forward = p.forward;
        const int group_heads = forward.heads / forward.kv_heads;
        const int parts = Shape::blocks_of_tile(group_heads);
        tile_ = p.query_tiles[block / (of.count * parts)];
        kv_head_ = of.first + block / parts % of.count;
        const int first_of_group = block % parts * Shape::heads;
        first_head_ = kv_head_ * group_heads + first_of_group;
        first_kept_ = first_head_ - of.first * group_heads;
        heads_ = min(Shape::heads, group_heads - first_of_group);
        first_ = first_key_tile(tile_.begin, forward.sliding_window, streamed_rows);
        const int end = min(tile_.begin + resident_rows, tile_.length);
        steps_ = (end - first_ + streamed_rows - 1) / streamed_rows;
    }

    __device__ __forceinline__ void copy(int thread) const {
        const HeadRows keys = head_rows(p_.forward.k, tile_, kv_head_, p_.forward.head_dim);
        for (int step = 0; step < steps_; ++step) {
            const int stage = step % stages;
            if (step >= stages) {
                wait_for(free_barrier<Shape>(shared_, stage), (step / stages - 1) & 1);
            }
            load_panels<dim, streamed_rows, copying_threads>(Shape::keys(shared_, stage), keys,
                                                             first_ + step * streamed_rows, thread);
            commit_copies();
            if (step > 0) finish<1>(step - 1, thread);
        }
        finish<0>(steps_ - 1, thread);
    }

    __device__ __forceinline__ void multiply() {
        const Place place;
        const StepRange own = steps_of(place.group);
        leave(0, own.begin);
        sum(place.group, own);
        leave(own.end, steps_);
        const int first = place.group * group_rows + place.warp * 16;
        const std::uint32_t panel = shared_ + Shape::output_at + place.group * Shape::keys_bytes +
                                    place.warp * 16 * panel_row_bytes;
#pragma unroll
        for (int head = 0; head < Shape::heads; ++head) {
            if (head >= heads_) break;
            store_rows(dq_[head], p_.forward.scale, panel,
                       head_rows(p_.dq, tile_, first_head_ + head, p_.forward.head_dim),
                       tile_.begin + first);
        }
    }

  private:
    __device__ __forceinline__ StepRange steps_of(int group) const {
        return steps_of_queries(tile_, tile_.begin + group * group_rows, first_,
                                p_.forward.sliding_window);
    }

    __device__ __forceinline__ void release(int step) const {
        if (lane_number() == 0) arrive(free_barrier<Shape>(shared_, step % stages));
    }
    /// Passes over steps that only the other group needs.
    __device__ __forceinline__ void leave(int begin, int end) const {
        for (int step = begin; step < end; ++step) {
            wait_for(filled_barrier<Shape>(shared_, step % stages), step / stages & 1);
            release(step);
        }
    }
    /// Products of both heads; if there is one head alone, the sums of the other are not used.
    __device__ __forceinline__ void sum(int group, const StepRange& own) {
#pragma unroll
        for (int head = 0; head < Shape::heads; ++head) use_products(dq_[head]);
        for (int step = own.begin; step < own.end; ++step) {
            const int stage = step % stages;
            wait_for(filled_barrier<Shape>(shared_, stage), step / stages & 1);
            begin_products();
#pragma unroll
            for (int head = 0; head < Shape::heads; ++head) {
                add(dq_[head], Shape::scores(shared_, stage, group, head),
                    Shape::keys(shared_, stage));
            }
            commit_products();
            if (step == own.begin) continue;
            wait_for_products<1>();
            release(step - 1);
        }
        wait_for_products<0>();
#pragma unroll
        for (int head = 0; head < Shape::heads; ++head) use_products(dq_[head]);
        if (own.end > own.begin) release(own.end - 1);
    }

    /// Waits for the keys of a step; those of `later` further steps may be under way.
    template <int later>
    __device__ __forceinline__ void finish(int step, int thread) const {
        wait_for_pieces<later>();
        show_to_products();
        const std::uint32_t barrier = filled_barrier<Shape>(shared_, step % stages);
        if (thread == 0) {
            copy_scores(step, barrier);
        } else {
            arrive(barrier);
        }
    }
    __device__ __forceinline__ void copy_scores(int step, std::uint32_t barrier) const {
        bool seen[groups];
        int panels = 0;
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            const StepRange range = steps_of(group);
            seen[group] = step >= range.begin && step < range.end;
            panels += seen[group] ? heads_ : 0;
        }
        arrive_before_copies(barrier, panels * scores_bytes);
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            for (int head = 0; seen[group] && head < heads_; ++head) {
                copy_bulk(Shape::scores(shared_, step % stages, group, head),
                          scores_of(p_, tile_, first_kept_ + head, tile_.begin + group * group_rows,
                                    first_ + step * streamed_rows),
                          scores_bytes, barrier);
            }
        }
    }

    static __device__ __forceinline__ void add(float (&sums)[dim / 2], std::uint32_t scores,
                                               std::uint32_t keys) {
        const std::uint32_t a = panel_operand(scores);
        const std::uint32_t b = panel_operand(keys, streamed_panel);
#pragma unroll
        for (int k = 0; k < streamed_rows / 16; ++k) {
            multiply_transposed(sums, a + k * panel_row_bytes, b + k * panel_row_bytes);
        }
    }

    const AttentionBackwardParams& p_;
    std::uint32_t shared_;
    AttentionTile tile_;
    int kv_head_;
    int first_head_;
    int first_kept_;  ///< the same head, counted within the launch
    int heads_;
    int first_;
    int steps_;
    float dq_[Shape::heads][dim / 2] = {};
};

}  // namespace loratrain::kernels::warpgroup
