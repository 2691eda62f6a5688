#pragma once

#include "attention_block.cuh"

namespace loratrain::kernels::warpgroup {

/// dK and dV of 64 keys of one key-value head for each group; the queries of its heads that see the
/// keys stream by.
template <class Shape>
class KeySums {
    static constexpr int dim = Shape::dim;
    static constexpr int stages = Shape::stages;

  public:
    __device__ __forceinline__ KeySums(const AttentionBackwardParams& p, const KvHeads& of,
                                       int block, std::uint32_t shared)
        : p_(p), of_(of), shared_(shared) {
        const AttentionParams& forward = p.forward;
        tile_ = p.key_tiles[block / of.count];
        kv_head_ = of.first + block % of.count;
        group_ = forward.heads / forward.kv_heads;
        const int end = query_end(tile_, resident_rows, forward.sliding_window);
        const int tiles = (end - tile_.begin + streamed_rows - 1) / streamed_rows;
        last_ = tile_.begin + (tiles - 1) * streamed_rows;
        steps_ = tiles * group_;
    }

    /// Run by the warpgroup that copies.
    __device__ __forceinline__ void copy(int thread) const {
        const AttentionParams& forward = p_.forward;
        StageWalk<stages> at;
        Pair pair = first();
        for (int step = 0; step < steps_; ++step) {
            if (step >= stages) wait_for(free_barrier<Shape>(shared_, at.stage), at.parity ^ 1U);
            const std::uint32_t target = first_tile<Shape>(shared_, at.stage);
            load_panels<dim, streamed_rows, copying_threads>(
                target, head_rows(forward.q, tile_, pair.head, p_.forward.head_dim), pair.begin,
                thread);
            load_panels<dim, streamed_rows, copying_threads>(
                target + Shape::streamed_bytes,
                head_rows(p_.d_o, tile_, pair.head, p_.forward.head_dim), pair.begin, thread);
            if (thread < streamed_rows) {
                const int row = pair.begin + thread;
                const float2* stats = p_.row_stats + pair.head * forward.q.rows + tile_.first + row;
                copy_8_async(shared_ + Shape::stats_at + at.stage * stats_bytes +
                                 thread * static_cast<int>(sizeof(float2)),
                             stats, row < tile_.length ? 8 : 0);
            }
            finish_copies(filled_barrier<Shape>(shared_, at.stage));
            next(pair);
            at.next();
        }
    }

    /// Run by the two warpgroups that multiply.
    __device__ __forceinline__ void multiply() {
        load_keys();
        Pair pair = first();
        StageWalk<stages> at;
        wait_for(filled_barrier<Shape>(shared_, 0), 0);
        use_products(dk_);
        use_products(dv_);
        begin_products();
        start_scores<dim, Shape::resident_panel>(s_, own_rows(0), queries(0));
        start_scores<dim, Shape::resident_panel>(ds_, own_rows(1), output_gradients(0));
        await_probabilities(pair.begin, 0);
        for (int step = 0; step < steps_; ++step) add_sums(at, pair, step);
        wait_for_products<0>();
        if (of_.keep_scores) {
            if (lane_number() == 0) wait_for_copies_out<0>();
            __syncwarp();
        }
        store(dk_, p_.forward.scale, p_.dk);
        store(dv_, 1.0F, p_.dv);
    }

  private:
    /// One step: 64 queries of one head.
    struct Pair {
        int begin;
        int head;
    };
    __device__ __forceinline__ Pair first() const { return {last_, kv_head_ * group_}; }
    __device__ __forceinline__ void next(Pair& pair) const {
        pair.begin -= streamed_rows;
        if (pair.begin < tile_.begin) pair = {last_, pair.head + 1};
    }

    __device__ __forceinline__ std::uint32_t queries(int stage) const {
        return first_tile<Shape>(shared_, stage);
    }
    __device__ __forceinline__ std::uint32_t output_gradients(int stage) const {
        return second_tile<Shape>(shared_, stage);
    }
    /// The resident tile of K (0) or V (1).
    __device__ __forceinline__ std::uint32_t own_rows(int which) const {
        return shared_ + Shape::resident_at + which * Shape::resident_bytes +
               place_.group * group_rows * panel_row_bytes;
    }

    __device__ __forceinline__ void load_keys() const {
        const int thread = static_cast<int>(threadIdx.x) - copying_threads;
        load_panels<dim, resident_rows, multiplying_threads>(
            shared_ + Shape::resident_at,
            head_rows(p_.forward.k, tile_, kv_head_, p_.forward.head_dim), tile_.begin, thread);
        load_panels<dim, resident_rows, multiplying_threads>(
            shared_ + Shape::resident_at + Shape::resident_bytes,
            head_rows(p_.forward.v, tile_, kv_head_, p_.forward.head_dim), tile_.begin, thread);
        commit_copies();
        wait_for_copies();
        show_to_products();
        meet<1, multiplying_threads>();
    }

    /// (lse, rowsum(dO * O)) of two queries.
    static __device__ __forceinline__ float4 load_stats(std::uint32_t stats, int n) {
        float4 pair;
        asm volatile(
            "ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
            : "=f"(pair.x), "=f"(pair.y), "=f"(pair.z), "=f"(pair.w)
            : "r"(stats + (n * 8 + ((lane_number() & 3) << 1)) * static_cast<int>(sizeof(float2))));
        return pair;
    }
    __device__ __forceinline__ std::uint32_t stats(int stage) const {
        return shared_ + Shape::stats_at + stage * stats_bytes;
    }

    __device__ __forceinline__ void hide_scores(int ahead) {
        const int lane = lane_number();
        const int first =
            ahead - place_.group * group_rows - place_.warp * 16 - (lane >> 2) + ((lane & 3) << 1);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const int distance = first + i / 4 * 8 + (i & 1) - ((i >> 1) & 1) * 8;
            if (is_hidden(distance, p_.forward.sliding_window)) s_[i] = -INFINITY;
        }
    }
    /// Turns scores into probabilities; their products run ahead of those for gradients of
    /// probabilities.
    __device__ __forceinline__ void await_probabilities(int begin, int stage) {
        wait_for_products<1>();
        use_products(s_);
        const int ahead = begin - tile_.begin;
        if (ahead < resident_rows || ahead >= p_.forward.sliding_window - (streamed_rows - 1)) {
            hide_scores(ahead);
        }
        const float scale = p_.forward.scale * log2_e;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float4 pair = load_stats(stats(stage), n);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float lse = (i & 1) == 0 ? pair.x : pair.z;
                s_[4 * n + i] = exp2_fast(fmaf(s_[4 * n + i], scale, -lse));
            }
        }
        round_to(a_, s_);
        wait_for_products<0>();
        use_products(ds_);
    }
    __device__ __forceinline__ void find_score_gradients(int stage) {
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            const float4 pair = load_stats(stats(stage), n);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float sum = (i & 1) == 0 ? pair.y : pair.w;
                ds_[4 * n + i] = s_[4 * n + i] * (ds_[4 * n + i] - sum);
            }
        }
    }

    __device__ __forceinline__ std::uint32_t output() const {
        return shared_ + Shape::output_at + place_.group * Shape::output_bytes;
    }
    /// This warp's 16 keys.
    __device__ __forceinline__ void store_score_gradients(const std::uint32_t (&a)[16],
                                                          const Pair& pair) {
        const int keys = tile_.begin + place_.group * group_rows;
        if (keys > pair.begin || keys >= tile_.length) return;
        const int lane = lane_number();
        const int offset = place_.warp * 16 * panel_row_bytes;
        const std::uint32_t rows = output() + panel_ * scores_bytes + offset;
        panel_ ^= 1;
        if (lane == 0) wait_for_copies_out<1>();
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            store_fragments(rows + panel_offset(lane & 15, 2 * k + (lane >> 4)), a + 4 * k);
        }
        show_to_products();
        __syncwarp();
        if (lane == 0) {
            copy_bulk_out(
                scores_of(p_, tile_, pair.head - of_.first * group_, pair.begin, keys) + offset,
                rows, 16 * panel_row_bytes);
        }
    }

    /// Adds the terms of a stage whose probabilities are known, then makes the probabilities of the
    /// next stage. The last step repeats its own, without use.
    __device__ __forceinline__ void add_sums(StageWalk<stages>& at, Pair& pair, int step) {
        const int stage = at.stage;
        const bool more = step + 1 < steps_;
        begin_products();
        start_sums(dv_, a_, output_gradients(stage));
        find_score_gradients(stage);
        std::uint32_t b[16];
        round_to(b, ds_);
        begin_products();
        start_sums(dk_, b, queries(stage));
        if (of_.keep_scores) store_score_gradients(b, pair);
        if (more) {
            next(pair);
            at.next();
            wait_for(filled_barrier<Shape>(shared_, at.stage), at.parity);
        }
        wait_for_products<1>();
        begin_products();
        start_scores<dim, Shape::resident_panel>(s_, own_rows(0), queries(at.stage));
        start_scores<dim, Shape::resident_panel>(ds_, own_rows(1), output_gradients(at.stage));
        wait_for_products<2>();
        if (lane_number() == 0) arrive(free_barrier<Shape>(shared_, stage));
        await_probabilities(pair.begin, at.stage);
    }

    __device__ __forceinline__ void store(const float (&sums)[dim / 2], float scale,
                                          const Matrix& to) const {
        const int first = place_.group * group_rows + place_.warp * 16;
        store_rows(sums, scale, output() + place_.warp * 16 * panel_row_bytes,
                   head_rows(to, tile_, kv_head_, p_.forward.head_dim), tile_.begin + first);
    }

    const AttentionBackwardParams& p_;
    const KvHeads& of_;
    std::uint32_t shared_;
    Place place_;
    AttentionTile tile_;
    int kv_head_;
    int group_;
    int last_;
    int steps_;
    int panel_ = 0;  ///< panel for the next gradients of scores
    float dk_[dim / 2] = {};
    float dv_[dim / 2] = {};
    float s_[32];
    float ds_[32];
    std::uint32_t a_[16];  ///< probabilities, rounded
};

}  // namespace loratrain::kernels::warpgroup
