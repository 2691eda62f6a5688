#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "backend/cpu/attention_blocks.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/gemm.h"
#include "backend/cpu/parallel.h"
#include "backend/cpu/vector_math.h"
#include "base/error.h"
#include "base/vector_code.h"

namespace loratrain {

namespace {

struct RunningSoftmax {
    std::array<float, attention_query_block> largest;
    std::array<float, attention_query_block> sum;
};

LORATRAIN_VECTOR_CODE
float exp_in_place(float* x, std::int64_t count, float shift) {
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < count; ++j) {
        x[j] = exp_inline(x[j] - shift);
        sum += x[j];
    }
    return sum;
}

/// Scores of one row to exp(score - largest so far); what was summed before is rescaled.
void update_row(std::int64_t row, float* scores, const KeyRange& visible, std::int64_t keys,
                RunningSoftmax& softmax, float* o, std::int64_t head_dim) {
    const float before = softmax.largest[row];
    float* seen = scores + visible.begin;
    const float now = largest_of(seen, visible.count(), before);
    std::fill(scores, seen, 0.0F);
    std::fill(scores + visible.end, scores + keys, 0.0F);
    if (visible.count() == 0) return;
    const float correction = before == now ? 1.0F : std::exp(before - now);
    softmax.largest[row] = now;
    softmax.sum[row] = softmax.sum[row] * correction + exp_in_place(seen, visible.count(), now);
    if (o != nullptr && correction != 1.0F) scale_values(o, head_dim, correction);
}

/// The sink's score joins the sum.
void add_sink(float sink, std::int64_t rows, RunningSoftmax& softmax, float* o, std::int64_t ld,
              std::int64_t head_dim) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float before = softmax.largest[row];
        const float now = std::max(before, sink);
        const float correction = std::exp(before - now);
        softmax.largest[row] = now;
        softmax.sum[row] = softmax.sum[row] * correction + std::exp(sink - now);
        scale_values(o + row * ld, head_dim, correction);
    }
}

void attend(const Attention& op, const AttentionBlock& block, std::int64_t group, float* scores) {
    const std::int64_t rows = block.end - block.begin;
    const std::int64_t dim = op.head_dim;
    const std::int64_t first_row = block.first + block.begin;
    const GemmOperand q{head_rows(op.q, first_row, block.head, dim), op.q.ld, false};
    float* o = head_rows(op.o, first_row, block.head, dim);
    RunningSoftmax softmax;
    softmax.largest.fill(-std::numeric_limits<float>::infinity());
    softmax.sum.fill(0.0F);
    const std::int64_t first = first_key(block.begin, op.sliding_window);
    for (std::int64_t begin = first; begin < block.end; begin += attention_key_block) {
        const std::int64_t keys = std::min(attention_key_block, block.end - begin);
        const std::int64_t key_row = block.first + begin;
        sgemm({rows, keys, dim}, op.scale, q,
              {head_rows(op.k, key_row, block.head / group, dim), op.k.ld, true}, 0.0F, scores,
              attention_score_ld);
        for (std::int64_t row = 0; row < rows; ++row) {
            const KeyRange visible =
                visible_keys(block.begin + row, op.sliding_window, begin, keys);
            float* of_row = scores + row * attention_score_ld;
            if (op.soft_cap > 0.0F) cap_scores(of_row, visible, op.soft_cap);
            update_row(row, of_row, visible, keys, softmax,
                       begin == first ? nullptr : o + row * op.o.ld, dim);
        }
        sgemm({rows, dim, keys}, 1.0F, {scores, attention_score_ld, false},
              {head_rows(op.v, key_row, block.head / group, dim), op.v.ld, false},
              begin == first ? 0.0F : 1.0F, o, op.o.ld);
    }
    if (op.sinks != nullptr) add_sink(op.sinks[block.head], rows, softmax, o, op.o.ld, dim);
    const std::int64_t heads = op.q.cols / dim;
    for (std::int64_t row = 0; row < rows; ++row) {
        scale_values(o + row * op.o.ld, dim, 1.0F / softmax.sum[row]);
        op.lse[(first_row + row) * heads + block.head] =
            softmax.largest[row] + std::log(softmax.sum[row]);
    }
}

}  // namespace

std::int64_t attention_group(const Attention& op) {
    LORATRAIN_CHECK(op.head_dim > 0 && op.q.cols % op.head_dim == 0 && op.k.cols > 0 &&
                        op.k.cols % op.head_dim == 0 && op.q.cols % op.k.cols == 0 &&
                        op.v.cols == op.k.cols,
                    "attention of ", op.q.cols, " query and ", op.k.cols,
                    " key columns with head_dim ", op.head_dim);
    return op.q.cols / op.k.cols;
}

void CpuBackend::attention(const Attention& op) {
    require_f32({&op.q, &op.k, &op.v, &op.o});
    const std::int64_t group = attention_group(op);
    const std::int64_t heads = op.q.cols / op.head_dim;
    attention_blocks_.clear();
    for (std::int64_t sample = 0; sample < op.rows.samples; ++sample) {
        const std::int64_t first = op.rows.host_offsets[sample];
        const std::int64_t length = op.rows.host_offsets[sample + 1] - first;
        for (std::int64_t head = 0; head < heads; ++head) {
            for (std::int64_t row = 0; row < length; row += attention_query_block) {
                attention_blocks_.push_back(
                    {first, row, std::min(length, row + attention_query_block), head});
            }
        }
    }
    const ThreadScratch scratch = reserve_scratch(attention_score_floats);
    parallel_for(threads_, static_cast<std::int64_t>(attention_blocks_.size()),
                 [&](std::int64_t i) { attend(op, attention_blocks_[i], group, scratch.local()); });
}

}  // namespace loratrain
