#include <algorithm>
#include <array>

#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

void zero_head(const TensorView& x, const AttentionBlock& sample, std::int64_t head,
               std::int64_t head_dim) {
    for (std::int64_t row = sample.begin; row < sample.end; ++row) {
        std::fill_n(head_rows(x, sample.first + row, head, head_dim), head_dim, 0.0F);
    }
}

/// scores -> P = exp(scores - lse), dp -> dS = P (dP - delta); what is not visible becomes 0.
LORATRAIN_VECTOR_CODE
void probabilities_row(float* scores, float* dp, const KeyRange& visible, std::int64_t keys,
                       float lse, float delta) {
    std::fill(scores, scores + visible.begin, 0.0F);
    std::fill(dp, dp + visible.begin, 0.0F);
#pragma omp simd
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
        const float p = exp_inline(scores[j] - lse);
        scores[j] = p;
        dp[j] = p * (dp[j] - delta);
    }
    std::fill(scores + visible.end, scores + keys, 0.0F);
    std::fill(dp + visible.end, dp + keys, 0.0F);
}

/// dS of capped scores to that of scores, with scores -> capped ones.
void cap_gradient(const float* capped, const KeyRange& visible, float cap, float* ds) {
    const float inverse = 1.0F / cap;
#pragma omp simd
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
        const float t = capped[j] * inverse;
        ds[j] *= 1.0F - t * t;
    }
}

/// One block of queries of one head against all keys it sees.
void attend_backward(const AttentionBackward& op, const AttentionBlock& block, std::int64_t kv_head,
                     float* scratch) {
    const Attention& forward = op.forward;
    const std::int64_t dim = forward.head_dim;
    const std::int64_t heads = forward.q.cols / dim;
    const std::int64_t rows = block.end - block.begin;
    const std::int64_t first_row = block.first + block.begin;
    const float* q = head_rows(forward.q, first_row, block.head, dim);
    const float* o = head_rows(forward.o, first_row, block.head, dim);
    const float* d_o = head_rows(op.d_o, first_row, block.head, dim);
    float* dq = head_rows(op.dq, first_row, block.head, dim);
    std::array<float, attention_query_block> delta;
    for (std::int64_t row = 0; row < rows; ++row) {
        delta[row] = dot(o + row * forward.o.ld, d_o + row * op.d_o.ld, dim);
    }
    float* p = scratch;
    float* ds = scratch + attention_score_floats;
    const std::int64_t first = first_key(block.begin, forward.sliding_window);
    for (std::int64_t begin = first; begin < block.end; begin += attention_key_block) {
        const std::int64_t keys = std::min(attention_key_block, block.end - begin);
        const std::int64_t key_row = block.first + begin;
        const float* k = head_rows(forward.k, key_row, kv_head, dim);
        const float* v = head_rows(forward.v, key_row, kv_head, dim);
        sgemm({rows, keys, dim}, forward.scale, {q, forward.q.ld, false}, {k, forward.k.ld, true},
              0.0F, p, attention_score_ld);
        sgemm({rows, keys, dim}, 1.0F, {d_o, op.d_o.ld, false}, {v, forward.v.ld, true}, 0.0F, ds,
              attention_score_ld);
        for (std::int64_t row = 0; row < rows; ++row) {
            const KeyRange visible =
                visible_keys(block.begin + row, forward.sliding_window, begin, keys);
            float* of_row = p + row * attention_score_ld;
            float* ds_row = ds + row * attention_score_ld;
            std::array<float, attention_key_block> capped;
            const bool caps = forward.soft_cap > 0.0F;
            if (caps) {
                cap_scores(of_row, visible, forward.soft_cap);
                std::copy_n(of_row, keys, capped.begin());
            }
            probabilities_row(of_row, ds_row, visible, keys,
                              forward.lse[(first_row + row) * heads + block.head], delta[row]);
            if (caps) cap_gradient(capped.data(), visible, forward.soft_cap, ds_row);
        }
        sgemm({keys, dim, rows}, 1.0F, {p, attention_score_ld, true}, {d_o, op.d_o.ld, false}, 1.0F,
              head_rows(op.dv, key_row, kv_head, dim), op.dv.ld);
        sgemm({keys, dim, rows}, forward.scale, {ds, attention_score_ld, true},
              {q, forward.q.ld, false}, 1.0F, head_rows(op.dk, key_row, kv_head, dim), op.dk.ld);
        sgemm({rows, dim, keys}, forward.scale, {ds, attention_score_ld, false},
              {k, forward.k.ld, false}, begin == first ? 0.0F : 1.0F, dq, op.dq.ld);
    }
}

/// All query heads of one key-value head over one sample, in order.
void attend_backward_group(const AttentionBackward& op, const AttentionBlock& sample,
                           std::int64_t group, float* scratch) {
    const std::int64_t dim = op.forward.head_dim;
    zero_head(op.dk, sample, sample.head, dim);
    zero_head(op.dv, sample, sample.head, dim);
    for (std::int64_t head = sample.head * group; head < (sample.head + 1) * group; ++head) {
        for (std::int64_t row = 0; row < sample.end; row += attention_query_block) {
            attend_backward(
                op, {sample.first, row, std::min(sample.end, row + attention_query_block), head},
                sample.head, scratch);
        }
    }
}

}  // namespace

void CpuBackend::attention_backward(const AttentionBackward& op) {
    require_f32({&op.d_o, &op.dq, &op.dk, &op.dv});
    const std::int64_t group = attention_group(op.forward);
    const std::int64_t kv_heads = op.forward.k.cols / op.forward.head_dim;
    attention_blocks_.clear();
    for (std::int64_t sample = 0; sample < op.forward.rows.samples; ++sample) {
        const std::int64_t first = op.forward.rows.host_offsets[sample];
        const std::int64_t length = op.forward.rows.host_offsets[sample + 1] - first;
        for (std::int64_t head = 0; head < kv_heads; ++head) {
            attention_blocks_.push_back({first, 0, length, head});
        }
    }
    const ThreadScratch scratch = reserve_scratch(2 * attention_score_floats);
    parallel_for(threads_, static_cast<std::int64_t>(attention_blocks_.size()),
                 [&](std::int64_t i) {
                     attend_backward_group(op, attention_blocks_[i], group, scratch.local());
                 });
}

}  // namespace loratrain
