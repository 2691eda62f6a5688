#include "model/layers/attention_sublayer.h"

namespace loratrain {

namespace {

TensorView pad_of(const TensorView& x, std::int64_t width) {
    return {x.offset(0, x.cols), x.dtype, x.rows, width, x.ld};
}

}  // namespace

TensorView AttentionSublayer::queries_and_keys(const LayerSite& at, const TensorView& qkv) {
    return qkv.col_range(0, at.attention().q_size() + at.attention().kv_size());
}

TensorView AttentionSublayer::raw(const LayerSite& at, int i) {
    const std::int64_t q = at.attention().q_size();
    return i == 0 ? at.saved.attention.qk_raw.col_range(0, q)
                  : at.saved.attention.qk_raw.col_range(q, at.attention().kv_size());
}

void AttentionSublayer::attend(const LayerSite& at) const {
    run_attention(tools_, at);
    if (!at.attention().output_gate) return;
    const AttentionActivations& saved = at.saved.attention;
    tools_.backend.swiglu({saved.gates, saved.seen, saved.o, {}, Activation::sigmoid});
}

std::int64_t AttentionSublayer::norm_groups(const LayerSite& at, const TensorView& q_or_k) {
    return at.attention().qk_norm_whole ? 1 : q_or_k.cols / at.attention().head_dim;
}

void AttentionSublayer::head_norm(const LayerSite& at, int i, const TensorView& y) const {
    const auto eps = static_cast<float>(tools_.model().rms_norm_eps);
    const TensorView x = raw(at, i);
    tools_.backend.rms_norm(
        {x, norm_weight(at, i).data(), eps, norm_groups(at, x), y, {}, tools_.norm_offset()});
}

void AttentionSublayer::head_norm_backward(const LayerSite& at, int i, const TensorView& dy) const {
    const auto eps = static_cast<float>(tools_.model().rms_norm_eps);
    const TensorView x = raw(at, i);
    tools_.backend.rms_norm_backward({x,
                                      norm_weight(at, i).data(),
                                      eps,
                                      norm_groups(at, x),
                                      dy,
                                      dy,
                                      false,
                                      {},
                                      tools_.norm_offset()});
}

const Buffer& AttentionSublayer::norm_weight(const LayerSite& at, int i) {
    return at.weights.tensor(i == 0 ? LayerTensor::q_norm : LayerTensor::k_norm);
}

bool AttentionSublayer::sums_norms(const LayerSite& at) const {
    return at.attention().qk_norm_whole && tools_.lanes.count() > 1;
}

Scratch AttentionSublayer::lease_sums(const LayerSite& at, std::int64_t sums) const {
    return tools_.workspace.lease(tools_.workspace.kinds().attention.norm_sums,
                                  sums * at.rows.tokens, 0, 2);
}

LaneNorm AttentionSublayer::lane_norm(const LayerSite& at, int i, const TensorView& squares,
                                      const TensorView& y) const {
    const TensorView x = raw(at, i);
    return {x,
            norm_weight(at, i).data(),
            static_cast<float>(tools_.model().rms_norm_eps),
            squares.col_range(i, 1),
            x.cols * tools_.lanes.count(),
            y,
            tools_.norm_offset()};
}

void AttentionSublayer::lane_norms(const LayerSite& at, const AttentionHeads& heads) const {
    const Scratch squares = lease_sums(at, 1);
    for (const int i : {0, 1}) {
        tools_.backend.row_dots({raw(at, i), raw(at, i), nullptr, 0.0F, squares->col_range(i, 1)});
    }
    tools_.lanes.all->all_reduce(squares);
    for (const int i : {0, 1}) {
        tools_.backend.lane_norm(lane_norm(at, i, squares, i == 0 ? heads.q : heads.k));
    }
}

void AttentionSublayer::lane_norms_backward(const LayerSite& at,
                                            const AttentionHeads& grads) const {
    const Scratch sums = lease_sums(at, 2);
    const TensorView squares = sums->row_range(0, at.rows.tokens);
    const TensorView dots = sums->row_range(at.rows.tokens, at.rows.tokens);
    for (const int i : {0, 1}) {
        const TensorView x = raw(at, i);
        tools_.backend.row_dots({x, x, nullptr, 0.0F, squares.col_range(i, 1)});
        tools_.backend.row_dots({x, i == 0 ? grads.q : grads.k, norm_weight(at, i).data(),
                                 tools_.norm_offset(), dots.col_range(i, 1)});
    }
    tools_.lanes.all->all_reduce(sums);
    for (const int i : {0, 1}) {
        const TensorView& dy = i == 0 ? grads.q : grads.k;
        tools_.backend.lane_norm_backward(
            {lane_norm(at, i, squares, {}), dots.col_range(i, 1), dy, dy});
    }
}

void AttentionSublayer::project_gated(const LayerSite& at, const Branch& branch) const {
    const AttentionSpec& spec = at.attention();
    const AttentionActivations& saved = at.saved.attention;
    const AttentionHeads heads = split_heads(at, saved.qkv);
    const Scratch both = lease_gated(at);
    branch.project(at.group(LinearGroup::qkv), {both, spec.qk_norm ? raw(at, 1) : heads.k, heads.v},
                   saved.s_qkv);
    const std::int64_t dim = spec.head_dim;
    const TensorView queries = spec.qk_norm ? raw(at, 0) : heads.q;
    tools_.backend.copy_heads({queries, both, spec.heads, dim, dim, 2 * dim});
    tools_.backend.copy_heads(
        {saved.gates, both->col_range(dim, both->cols - dim), spec.heads, dim, dim, 2 * dim});
}

void AttentionSublayer::project_qkv(const LayerSite& at, const Branch& branch) const {
    const AttentionSpec& spec = at.attention();
    const GroupSite qkv = at.group(LinearGroup::qkv);
    if (spec.output_gate) {
        project_gated(at, branch);
    } else {
        PerLinear y = tools_.outputs_of(qkv, at.saved.attention.qkv);
        if (spec.qk_norm) {
            y[0] = raw(at, 0);
            y[1] = raw(at, 1);
        }
        branch.project(qkv, y, at.saved.attention.s_qkv);
    }
    if (spec.qk_norm_behind_rope)
        rotate_heads(tools_, at.saved.attention.qk_raw, at, false, spec.q_size());
    if (spec.qk_norm) head_norms(at, split_heads(at, at.saved.attention.qkv));
    if (spec.qk_norm_behind_rope) return;
    rotate_heads(tools_, queries_and_keys(at, at.saved.attention.qkv), at, false, spec.q_size());
}

void AttentionSublayer::head_norms(const LayerSite& at, const AttentionHeads& heads) const {
    if (sums_norms(at)) return lane_norms(at, heads);
    head_norm(at, 0, heads.q);
    head_norm(at, 1, heads.k);
}

void AttentionSublayer::head_norms_backward(const LayerSite& at,
                                            const AttentionHeads& grads) const {
    if (sums_norms(at)) return lane_norms_backward(at, grads);
    head_norm_backward(at, 0, grads.q);
    head_norm_backward(at, 1, grads.k);
}

void AttentionSublayer::forward(const LayerSite& at, const Branch& branch) {
    project_qkv(at, branch);
    attend(at);
    const TensorView& made = at.saved.attention.o;
    branch.add(at.group(LinearGroup::o), {{made}, {pad_of(made, at.rows.width), {}, {}}});
}

TensorView AttentionSublayer::projected(const LayerSite& at, int i, const TensorView& spare) const {
    const AttentionSpec& spec = at.attention();
    if (LoraLinear::has_bias_of(at.group(LinearGroup::qkv), i) || spec.fused_qkv) return {};
    if (i == 0 && spec.output_gate) return {};
    const AttentionHeads heads = split_heads(at, at.saved.attention.qkv);
    if (i == 2) return heads.v;
    if (spec.qk_norm && !(spec.rope && spec.qk_norm_behind_rope)) return raw(at, i);
    const TensorView rotated = spec.qk_norm ? raw(at, i) : i == 0 ? heads.q : heads.k;
    if (!spec.rope) return rotated;
    if (i == 0 && spec.rope->query_beta != 0.0) return {};
    if (spec.rope->rotated < 1.0) return {};
    tools_.backend.copy({spare, rotated});
    rotate_heads(tools_, spare, at, true, 0);
    return spare;
}

Scratch AttentionSublayer::o_backward(const LayerSite& at, const Branch& branch) const {
    LoraLinear& linear = tools_.linear;
    const TensorView& made = at.saved.attention.o;
    const GroupSite o = at.group(LinearGroup::o);
    const TensorView s = pad_of(made, at.rows.width);
    const Scratch d_made = branch.gradient_of_made();
    linear.backward_b(o, d_made, {s, {}, {}});
    linear.backward_a(o, made, d_made);
    {
        const Scratch dropped = tools_.workspace.gradient(made.rows, made.cols);
        const Scratch spare = tools_.workspace.inner(made.rows, d_made->cols);
        linear.add_form_gradients(o, 0, {made, d_made, dropped, branch.kept_output(o), spare}, s);
    }
    Scratch d_o = tools_.workspace.inner(made.rows, made.cols);
    linear.backward_x(o, {d_made}, d_o);
    return d_o;
}

Scratch AttentionSublayer::lease_gated(const LayerSite& at) const {
    return tools_.workspace.lease(tools_.workspace.kinds().attention.gated, at.rows.tokens, 0,
                                  at.attention().q_outputs());
}

TensorView AttentionSublayer::gate_backward(const LayerSite& at, const TensorView& d_o,
                                            const TensorView& gated,
                                            const TensorView& d_qkv) const {
    const AttentionSpec& spec = at.attention();
    const AttentionActivations& saved = at.saved.attention;
    const TensorView d_gates = gated.col_range(0, d_o.cols);
    const TensorView d_seen = gated.col_range(d_o.cols, d_o.cols);
    tools_.backend.swiglu_backward(
        {saved.gates, saved.seen, d_o, d_gates, d_seen, {}, {}, Activation::sigmoid});
    const std::int64_t dim = spec.head_dim;
    tools_.backend.copy_heads(
        {d_qkv.col_range(dim, spec.q_outputs() - dim), d_gates, spec.heads, dim, 2 * dim, dim});
    return d_seen;
}

void AttentionSublayer::backward(const LayerSite& at, const Branch& branch, bool need_dx) {
    const AttentionSpec& spec = at.attention();
    const AttentionActivations& saved = at.saved.attention;
    Scratch d_o = o_backward(at, branch);

    const GroupSite qkv = at.group(LinearGroup::qkv);
    const std::int64_t outputs = spec.q_outputs() + 2 * spec.kv_size();
    const Scratch d_qkv = tools_.workspace.gradient(
        saved.qkv.rows, outputs, qkv.count() * tools_.view.replica.saved_columns);
    AttentionHeads grads =
        split_heads(at, d_qkv.view().col_range(outputs - saved.qkv.cols, saved.qkv.cols));
    if (spec.output_gate) {
        const Scratch gated = lease_gated(at);
        const TensorView d_seen = gate_backward(at, d_o, gated, d_qkv);
        grads.q = d_o;
        tools_.backend.attention_backward({attention_op(at), d_seen, grads.q, grads.k, grads.v});
    } else {
        tools_.backend.attention_backward({attention_op(at), d_o, grads.q, grads.k, grads.v});
        d_o.end();
    }
    if (spec.qk_norm_behind_rope) head_norms_backward(at, grads);
    if (spec.output_gate) {
        rotate_heads(tools_, grads.q, at, true, spec.q_size());
        rotate_heads(tools_, grads.k, at, true, 0);
    } else {
        rotate_heads(tools_, queries_and_keys(at, d_qkv), at, true, spec.q_size());
    }
    if (spec.qk_norm && !spec.qk_norm_behind_rope) head_norms_backward(at, grads);
    if (spec.output_gate) {
        const std::int64_t dim = spec.head_dim;
        tools_.backend.copy_heads({d_qkv, grads.q, spec.heads, dim, 2 * dim, dim});
        d_o.end();
    }
    tools_.linear.backward_b(qkv, d_qkv, tools_.columns_of(qkv, saved.s_qkv));
    branch.project_backward(
        qkv, {d_qkv}, saved.s_qkv,
        [&](int i, const TensorView& spare) { return projected(at, i, spare); }, need_dx);
}

}  // namespace loratrain
