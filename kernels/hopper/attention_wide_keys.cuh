#pragma once

#include "attention_block.cuh"

namespace loratrain::kernels::warpgroup {

/// Sizes of WideKeySums for heads of up to `head_columns` columns. A step's two tiles, queries and
/// their outputs' gradients, are stages 2 * s and 2 * s + 1.
template <int head_columns>
struct WideKeyShape {
    static constexpr int dim = head_columns;
    static constexpr int steps = 2;  ///< in shared memory at once
    static constexpr int stages = 2 * steps;
    static constexpr int multiplying_warps = multiplying_threads / 32;

    static constexpr int tile_bytes = dim / panel_columns * streamed_panel;
    static constexpr int stage_bytes = tile_bytes;
    static constexpr int probabilities_bytes = group_rows * streamed_rows * 2;

    /// Shared memory, from a multiple of 1024 on: keys, values, stages, probabilities and
    /// statistics of the steps.
    static constexpr int stages_at = 2 * tile_bytes;
    static constexpr int probabilities_at = stages_at + stages * stage_bytes;
    static constexpr int stats_at = probabilities_at + steps * probabilities_bytes;
    static constexpr int filled_at = stats_at + steps * stats_bytes;
    static constexpr int free_at = filled_at + stages * 8;
    static constexpr int made_at = free_at + stages * 8;
    static constexpr int used_at = made_at + steps * 8;
    static constexpr int shared_bytes = used_at + steps * 8;
    static_assert(shared_bytes <= most_shared_bytes);
};

/// dK and dV of 64 keys of one key-value head; the queries of its heads that see the keys stream
/// by. Sums of both leave one warpgroup no registers, so the first makes P and dV, the second dP
/// and, with the first's P in bf16, dS and dK.
template <class Shape>
class WideKeySums {
    static constexpr int dim = Shape::dim;
    using Walk = StageWalk<Shape::steps>;

  public:
    __device__ __forceinline__ WideKeySums(const AttentionBackwardParams& p, int block,
                                           std::uint32_t shared)
        : p_(p), shared_(shared) {
        const AttentionParams& forward = p.forward;
        tile_ = p.key_tiles[block / forward.kv_heads];
        kv_head_ = block % forward.kv_heads;
        const int group = forward.heads / forward.kv_heads;
        end_ = query_end(tile_, group_rows, forward.sliding_window);
        steps_ = group * ((end_ - tile_.begin + streamed_rows - 1) / streamed_rows);
        first_head_ = kv_head_ * group;
    }

    /// Run by the first thread of the block before the others go on.
    static __device__ __forceinline__ void make_barriers(std::uint32_t shared) {
        make_stage_barriers<Shape>(shared);
        for (int step = 0; step < Shape::steps; ++step) {
            make_barrier(shared + Shape::made_at + step * 8, Shape::multiplying_warps / groups);
            make_barrier(shared + Shape::used_at + step * 8, Shape::multiplying_warps / groups);
        }
    }

    /// Run by the warpgroup that copies.
    __device__ __forceinline__ void copy(int thread) const {
        const AttentionParams& forward = p_.forward;
        load_wide_panels<dim, group_rows, copying_threads>(
            shared_, head_rows(forward.k, tile_, kv_head_, forward.head_dim), tile_.begin, thread);
        load_wide_panels<dim, group_rows, copying_threads>(
            shared_ + Shape::tile_bytes, head_rows(forward.v, tile_, kv_head_, forward.head_dim),
            tile_.begin, thread);
        Walk at;
        Queries walk = first();
        for (int step = 0; step < steps_; ++step) {
            const bool again = step >= Shape::steps;
            const int queries = 2 * at.stage;
            if (again) wait_for(free_barrier<Shape>(shared_, queries), at.parity ^ 1U);
            if (thread < streamed_rows) {
                const int row = walk.begin + thread;
                const float2* stats = p_.row_stats + walk.head * forward.q.rows + tile_.first + row;
                copy_8_async(stats_of(at.stage) + thread * static_cast<int>(sizeof(float2)), stats,
                             row < tile_.length ? 8 : 0);
            }
            load_wide_panels<dim, streamed_rows, copying_threads>(
                first_tile<Shape>(shared_, queries),
                head_rows(forward.q, tile_, walk.head, forward.head_dim), walk.begin, thread);
            arrive_behind_pieces(filled_barrier<Shape>(shared_, queries));
            if (again) wait_for(free_barrier<Shape>(shared_, queries + 1), at.parity ^ 1U);
            load_wide_panels<dim, streamed_rows, copying_threads>(
                first_tile<Shape>(shared_, queries + 1),
                head_rows(p_.d_o, tile_, walk.head, forward.head_dim), walk.begin, thread);
            arrive_behind_pieces(filled_barrier<Shape>(shared_, queries + 1));
            walk.next(tile_, end_);
            at.next();
        }
        wait_for_copies();
    }

    /// Run by the two warpgroups that multiply.
    __device__ __forceinline__ void multiply() {
        if (place_.group == 0) {
            sum_values();
        } else {
            sum_keys();
        }
    }

  private:
    using Queries = QueryWalk<streamed_rows>;
    __device__ __forceinline__ Queries first() const { return {first_head_, tile_.begin}; }

    __device__ __forceinline__ std::uint32_t stats_of(int step) const {
        return shared_ + Shape::stats_at + step * stats_bytes;
    }
    /// (lse, rowsum(dO * O)) of two queries.
    __device__ __forceinline__ float4 load_stats(int step, int n) const {
        float4 pair;
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                     : "=f"(pair.x), "=f"(pair.y), "=f"(pair.z), "=f"(pair.w)
                     : "r"(stats_of(step) +
                           (n * 8 + ((lane_number() & 3) << 1)) * static_cast<int>(sizeof(float2)))
                     : "memory");
        return pair;
    }
    /// Where a thread has its probabilities of a step: four times 16 bytes, piece after piece.
    __device__ __forceinline__ std::uint32_t own_probabilities(int step) const {
        return shared_ + Shape::probabilities_at + step * Shape::probabilities_bytes +
               (place_.warp * 32 + lane_number()) * 16;
    }
    static constexpr int piece_bytes = warpgroup_threads * 16;

    __device__ __forceinline__ void await(int stage, std::uint32_t parity) const {
        wait_for(filled_barrier<Shape>(shared_, stage), parity);
        show_to_products();
    }
    __device__ __forceinline__ void release(int stage) const {
        if (lane_number() == 0) arrive(free_barrier<Shape>(shared_, stage));
    }

    __device__ __forceinline__ void start_scores_of(int own_tile, int stage) {
        start_scores<dim, streamed_panel>(s_, shared_ + own_tile * Shape::tile_bytes,
                                          first_tile<Shape>(shared_, stage));
    }

    /// Sets scores of queries that do not see a key to -inf. `ahead`: first query - first key.
    __device__ __forceinline__ void hide_queries(int ahead) {
        if (ahead >= group_rows - 1 && ahead <= p_.forward.sliding_window - streamed_rows) return;
        const int lane = lane_number();
        const int first = ahead - place_.warp * 16 - (lane >> 2) + ((lane & 3) << 1);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const int distance = first + i / 4 * 8 + (i & 1) - ((i >> 1) & 1) * 8;
            if (is_hidden(distance, p_.forward.sliding_window)) s_[i] = -INFINITY;
        }
    }
    /// Turns transposed scores into probabilities, and hands those on.
    __device__ __forceinline__ void make_probabilities(const Walk& at, int ahead, bool again) {
        hide_queries(ahead);
        const float scale = p_.forward.scale * log2_e;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float4 pair = load_stats(at.stage, n);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float lse = (i & 1) == 0 ? pair.x : pair.z;
                s_[4 * n + i] = exp2_fast(fmaf(s_[4 * n + i], scale, -lse));
            }
        }
        round_to(a_, s_);
        if (again) wait_for(shared_ + Shape::used_at + at.stage * 8, at.parity ^ 1U);
        const std::uint32_t to = own_probabilities(at.stage);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(to + i * piece_bytes),
                         "r"(a_[4 * i]), "r"(a_[4 * i + 1]), "r"(a_[4 * i + 2]), "r"(a_[4 * i + 3])
                         : "memory");
        }
        __syncwarp();
        if (lane_number() == 0) arrive(shared_ + Shape::made_at + at.stage * 8);
    }
    /// Turns transposed gradients of probabilities into those of scores.
    __device__ __forceinline__ void make_score_gradients(const Walk& at) {
        wait_for(shared_ + Shape::made_at + at.stage * 8, at.parity);
        const std::uint32_t from = own_probabilities(at.stage);
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n % 2 == 0) {
                asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
                             : "=r"(a_[2 * n]), "=r"(a_[2 * n + 1]), "=r"(a_[2 * n + 2]),
                               "=r"(a_[2 * n + 3])
                             : "r"(from + n / 2 * piece_bytes)
                             : "memory");
            }
            const float4 pair = load_stats(at.stage, n);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const std::uint32_t two = a_[2 * n + i / 2];
                const float probability = (i & 1) == 0 ? low_half(two) : high_half(two);
                const float sum = (i & 1) == 0 ? pair.y : pair.w;
                s_[4 * n + i] = probability * (s_[4 * n + i] - sum);
            }
        }
        __syncwarp();
        if (lane_number() == 0) arrive(shared_ + Shape::used_at + at.stage * 8);
        round_to(a_, s_);
    }

    /// Adds a step's products, with tile `of_sums` of the step, and starts the scores of the next,
    /// with tile `of_scores`.
    __device__ __forceinline__ void add_sums(Walk& at, int own_tile, int of_scores, int of_sums,
                                             bool more) {
        const int stage = 2 * at.stage + of_sums;
        await(stage, at.parity);
        use_products(sums_);
        begin_products();
        start_sums(sums_, a_, first_tile<Shape>(shared_, stage));
        if (more) {
            at.next();
            await(2 * at.stage + of_scores, at.parity);
            begin_products();
            start_scores_of(own_tile, 2 * at.stage + of_scores);
            wait_for_products<1>();
            release(stage);
        }
        wait_for_products<0>();
        use_products(sums_);
        use_products(s_);
    }

    __device__ __forceinline__ void sum_values() {
        Walk at;
        Queries walk = first();
        await(0, 0);
        begin_products();
        start_scores_of(0, 0);
        wait_for_products<0>();
        use_products(s_);
        for (int step = 0; step < steps_; ++step) {
            make_probabilities(at, walk.begin - tile_.begin, step >= Shape::steps);
            walk.next(tile_, end_);
            // Scores and statistics of the step have been read.
            __syncwarp();
            release(2 * at.stage);
            add_sums(at, 0, 0, 1, step + 1 < steps_);
        }
        store(0, 1.0F, p_.dv);
    }

    __device__ __forceinline__ void sum_keys() {
        Walk at;
        await(1, 0);
        begin_products();
        start_scores_of(1, 1);
        wait_for_products<0>();
        use_products(s_);
        for (int step = 0; step < steps_; ++step) {
            release(2 * at.stage + 1);
            // Statistics come with the queries.
            await(2 * at.stage, at.parity);
            make_score_gradients(at);
            add_sums(at, 1, 1, 0, step + 1 < steps_);
        }
        store(1, p_.forward.scale, p_.dk);
    }

    /// Through the group's own tile, once no warp's products read it any more.
    __device__ __forceinline__ void store(int own_tile, float scale, const Matrix& to) const {
        if (place_.group == 0) {
            meet<1, warpgroup_threads>();
        } else {
            meet<2, warpgroup_threads>();
        }
        store_panels(sums_, scale,
                     shared_ + own_tile * Shape::tile_bytes + place_.warp * 16 * panel_row_bytes,
                     head_rows(to, tile_, kv_head_, p_.forward.head_dim),
                     tile_.begin + place_.warp * 16);
    }

    const AttentionBackwardParams& p_;
    std::uint32_t shared_;
    Place place_;
    AttentionTile tile_;
    int kv_head_;
    int first_head_;
    int end_;
    int steps_;
    float sums_[dim / 2] = {};
    float s_[32];
    std::uint32_t a_[16];  ///< probabilities or gradients of scores, rounded
};

}  // namespace loratrain::kernels::warpgroup
