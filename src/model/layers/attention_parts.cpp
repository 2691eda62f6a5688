#include "model/layers/attention_parts.h"

namespace loratrain {

AttentionHeads split_heads(const LayerSite& at, const TensorView& qkv) {
    const std::int64_t q = at.attention().q_size();
    const std::int64_t kv = at.attention().kv_size();
    return {qkv.col_range(0, q), qkv.col_range(q, kv), qkv.col_range(q + kv, kv)};
}

Attention attention_op(const LayerSite& at) {
    const AttentionSpec& spec = at.attention();
    const AttentionHeads heads = split_heads(at, at.saved.attention.qkv);
    Attention op;
    op.q = heads.q;
    op.k = heads.k;
    op.v = heads.v;
    op.o = spec.output_gate ? at.saved.attention.seen : at.saved.attention.o;
    op.lse = at.saved.attention.lse.f32();
    op.head_dim = spec.head_dim;
    op.scale = static_cast<float>(spec.scale());
    op.rows = at.rows.packed;
    op.sliding_window = spec.sliding_window;
    op.soft_cap = static_cast<float>(spec.soft_cap);
    op.sinks = static_cast<const float*>(at.weights.tensor(LayerTensor::sinks).data());
    return op;
}

void run_attention(const LayerTools& tools, const LayerSite& at) {
    const Attention op = attention_op(at);
    if (at.texts != nullptr) return at.texts->attend(at.layer, op, at.rows.first_sample);
    tools.backend.attention(op);
}

namespace {

/// Longrope: an operator for each run of samples that have the same factors.
void rope_by_length(const LayerTools& tools, const Rope& all, const LayerSite& at) {
    const std::int64_t short_length = at.attention().rope->original_max_position;
    const PackedRows& rows = at.rows.packed;
    const auto is_long = [&](std::int64_t sample) {
        return at.rows.lengths[static_cast<std::size_t>(sample)] > short_length;
    };
    for (std::int64_t first = 0, end = 0; first < rows.samples; first = end) {
        while (end < rows.samples && is_long(end) == is_long(first)) ++end;
        const std::int64_t row = rows.host_offsets[first];
        Rope op = all;
        op.x = all.x.row_range(row, rows.host_offsets[end] - row);
        op.positions += row;
        if (is_long(first)) op.inv_freq += op.rotated() / 2;
        tools.backend.rope(op);
    }
}

}  // namespace

void rotate_heads(const LayerTools& tools, const TensorView& x, const LayerSite& at, bool backward,
                  std::int64_t queries) {
    const AttentionSpec& spec = at.attention();
    if (!spec.rope) return;
    const RopeSpec& rotation = *spec.rope;
    Rope op{x, spec.head_dim, at.weights.inv_freq, at.rows.packed.positions, backward};
    op.rotary_dim = rotary_dim(spec.head_dim, rotation);
    op.interleaved = rotation.interleaved;
    if (rotation.rotated < 1.0) op.length = static_cast<float>(rotation.attention_factor);
    if (rotation.query_beta != 0.0) {
        op.scaled_columns = queries;
        op.scale_beta = static_cast<float>(rotation.query_beta);
        op.scale_period = static_cast<float>(rotation.original_max_position);
    }
    if (rotation.type == RopeType::longrope) return rope_by_length(tools, op, at);
    tools.backend.rope(op);
}

}  // namespace loratrain
