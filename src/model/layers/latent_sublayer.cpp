#include "model/layers/latent_sublayer.h"

namespace loratrain {

namespace {

const LatentSpec& latent_of(const LayerSite& at) {
    return *at.attention().latent;
}

/// Columns of kv_a's outputs.
TensorView outputs_of_kv_a(const LayerSite& at, const TensorView& latent) {
    const LatentSpec& of = latent_of(at);
    return latent.col_range(latent.cols - of.kv_rank - of.rope_dim, of.kv_rank + of.rope_dim);
}

}  // namespace

bool LatentSublayer::has_queries(const LayerSite& at) {
    return latent_of(at).q_rank > 0;
}

LatentSublayer::Row LatentSublayer::queries(const LayerSite& at) {
    const AttentionActivations& saved = at.saved.attention;
    return {at.group(LinearGroup::latent_q), saved.latent.col_range(0, latent_of(at).q_rank),
            at.weights.tensor(LayerTensor::latent_q_norm),
            saved.s_heads.col_range(0, at.rows.width)};
}

LatentSublayer::Row LatentSublayer::keys_and_values(const LayerSite& at) {
    const AttentionActivations& saved = at.saved.attention;
    return {at.group(LinearGroup::latent_kv),
            outputs_of_kv_a(at, saved.latent).col_range(0, latent_of(at).kv_rank),
            at.weights.tensor(LayerTensor::latent_kv_norm),
            saved.s_heads.col_range(saved.s_heads.cols / 2, at.rows.width)};
}

TensorView LatentSublayer::s_of_o(const LayerSite& at) {
    return at.saved.attention.s_o.col_range(0, at.rows.width);
}

Scratch LatentSublayer::lease(ScratchMatrix AttentionScratch::*of, const LayerSite& at,
                              std::int64_t first, std::int64_t columns) const {
    return tools_.workspace.lease(tools_.workspace.kinds().attention.*of, at.rows.tokens, first,
                                  columns);
}

RmsNorm LatentSublayer::norm_op(const Row& row, const TensorView& y) const {
    const auto eps = static_cast<float>(latent_norm_eps);
    return {row.x, row.norm.data(), eps, 1, y, {}, tools_.norm_offset()};
}

Scratch LatentSublayer::normed(const Row& row) const {
    Scratch y = tools_.workspace.input(row.x.rows, row.x.cols, tools_.view.replica.saved_columns);
    tools_.backend.rms_norm(norm_op(row, y));
    return y;
}

void LatentSublayer::expand(const Row& row, const TensorView& y) const {
    const Scratch x = normed(row);
    tools_.linear.forward(row.group, {{x}, {row.s}}, {y}, {});
}

void LatentSublayer::contract(const Row& row, const TensorView& dy, const TensorView& dx) const {
    LoraLinear& linear = tools_.linear;
    linear.backward_b(row.group, dy, {row.s});
    {
        const Scratch x = normed(row);
        linear.backward_a(row.group, x, dy);
        const Scratch spare = tools_.workspace.inner(dy.rows, dy.cols);
        linear.add_form_gradients(row.group, 0, {x, dy, x, {}, spare}, row.s);
    }
    const Scratch d_normed = tools_.workspace.inner(dx.rows, dx.cols);
    linear.backward_x(row.group, {dy}, d_normed);
    const RmsNorm norm = norm_op(row, {});
    tools_.backend.rms_norm_backward(
        {norm.x, norm.weight, norm.eps, norm.groups, d_normed, dx, false, {}, norm.weight_offset});
}

void LatentSublayer::rotate(const TensorView& heads, const LayerSite& at, bool backward) const {
    // The view begins with the first head's last columns: those behind the last head's stay.
    TensorView last = heads;
    last.data = heads.offset(0, at.attention().nope_dim());
    rotate_heads(tools_, last, at, backward, 0);
}

void LatentSublayer::project(const LayerSite& at, const Branch& branch) const {
    const AttentionSpec& spec = at.attention();
    const AttentionActivations& saved = at.saved.attention;
    const AttentionHeads heads = split_heads(at, saved.qkv);
    const std::int64_t dim = spec.head_dim;
    const std::int64_t nope = spec.nope_dim();
    const std::int64_t values = latent_of(at).value_dim;
    const TensorView kv_a = outputs_of_kv_a(at, saved.latent);
    const TensorView q = has_queries(at) ? queries(at).x : heads.q;
    if (values < dim) {
        const std::int64_t elements = saved.qkv.rows * saved.qkv.ld;
        tools_.backend.zero(saved.qkv.data,
                            static_cast<std::size_t>(elements) * saved.qkv.element_size());
    }
    branch.project(at.group(LinearGroup::qkv), {q, kv_a}, saved.s_qkv);
    if (has_queries(at)) expand(queries(at), heads.q);
    {
        const std::int64_t made = nope + values;
        const Scratch both = lease(&AttentionScratch::heads, at, 0, spec.heads * made);
        expand(keys_and_values(at), both);
        tools_.backend.copy_heads({heads.k, both, spec.heads, nope, dim, made});
        tools_.backend.copy_heads(
            {heads.v, both->col_range(nope, both->cols - nope), spec.heads, values, dim, made});
    }
    const std::int64_t rotated = latent_of(at).rope_dim;
    tools_.backend.copy_heads({heads.k.col_range(nope, heads.k.cols - nope),
                               kv_a.col_range(kv_a.cols - rotated, rotated), spec.heads, rotated,
                               dim, 0});
    rotate(saved.qkv.col_range(0, heads.q.cols + heads.k.cols), at, false);
}

Scratch LatentSublayer::made_of(const LayerSite& at) const {
    const AttentionSpec& spec = at.attention();
    const std::int64_t values = latent_of(at).value_dim;
    Scratch made =
        tools_.workspace.input(at.rows.tokens, spec.o_inputs(), tools_.view.replica.saved_columns);
    tools_.backend.copy_heads(
        {made, at.saved.attention.o, spec.heads, values, values, spec.head_dim});
    return made;
}

void LatentSublayer::forward(const LayerSite& at, const Branch& branch) {
    project(at, branch);
    run_attention(tools_, at);
    const Scratch made = made_of(at);
    branch.add(at.group(LinearGroup::o), {{made}, {s_of_o(at)}});
}

void LatentSublayer::o_backward(const LayerSite& at, const Branch& branch,
                                const TensorView& d_o) const {
    LoraLinear& linear = tools_.linear;
    const AttentionSpec& spec = at.attention();
    const std::int64_t values = latent_of(at).value_dim;
    const GroupSite o = at.group(LinearGroup::o);
    const Scratch d_sum = branch.gradient_of_made();
    linear.backward_b(o, d_sum, {s_of_o(at)});
    {
        const Scratch d_made = tools_.workspace.inner(at.rows.tokens, spec.o_inputs());
        linear.backward_x(o, {d_sum}, d_made);
        tools_.backend.copy_heads({d_o, d_made, spec.heads, values, spec.head_dim, values});
    }
    const Scratch made = made_of(at);
    linear.backward_a(o, made, d_sum);
    const Scratch spare = tools_.workspace.inner(made->rows, d_sum->cols);
    linear.add_form_gradients(o, 0, {made, d_sum, made, branch.kept_output(o), spare}, s_of_o(at));
}

void LatentSublayer::keys_backward(const LayerSite& at, const AttentionHeads& grads,
                                   const TensorView& dx) const {
    const AttentionSpec& spec = at.attention();
    const std::int64_t dim = spec.head_dim;
    const std::int64_t nope = spec.nope_dim();
    const std::int64_t values = latent_of(at).value_dim;
    const std::int64_t rotated = latent_of(at).rope_dim;
    const std::int64_t made = nope + values;
    const Scratch both = tools_.workspace.gradient(at.rows.tokens, spec.heads * made,
                                                   tools_.view.replica.saved_columns);
    tools_.backend.copy_heads({both, grads.k, spec.heads, nope, made, dim});
    tools_.backend.copy_heads(
        {both->col_range(nope, both->cols - nope), grads.v, spec.heads, values, made, dim});
    tools_.backend.sum_heads({dx.col_range(dx.cols - rotated, rotated),
                              grads.k.col_range(nope, grads.k.cols - nope), spec.heads, dim});
    contract(keys_and_values(at), both, dx.col_range(0, dx.cols - rotated));
}

void LatentSublayer::backward(const LayerSite& at, const Branch& branch, bool need_dx) {
    const AttentionSpec& spec = at.attention();
    const AttentionActivations& saved = at.saved.attention;
    const GroupSite qkv = at.group(LinearGroup::qkv);
    const std::int64_t pad = tools_.view.replica.saved_columns;
    const bool latent_queries = has_queries(at);
    const std::int64_t outputs = saved.latent.cols + (latent_queries ? 0 : spec.q_size());
    const Scratch d_outputs = lease(&AttentionScratch::d_latent, at, 0, outputs);
    const TensorView d_kv_a = outputs_of_kv_a(at, d_outputs);
    {
        const Scratch of_heads = lease(&AttentionScratch::heads, at, 0, 3 * spec.q_size());
        const AttentionHeads all = split_heads(at, of_heads);
        const TensorView& d_o = all.q;
        tools_.backend.zero(
            of_heads->data,
            static_cast<std::size_t>(of_heads->rows * of_heads->ld) * of_heads->element_size());
        o_backward(at, branch, d_o);
        Scratch of_queries;
        if (latent_queries)
            of_queries = tools_.workspace.gradient(at.rows.tokens, spec.q_size(), pad);
        const AttentionHeads grads{
            latent_queries ? of_queries.view() : d_outputs->col_range(0, spec.q_size()), all.k,
            all.v};
        tools_.backend.attention_backward({attention_op(at), d_o, grads.q, grads.k, grads.v});
        rotate(grads.q, at, true);
        rotate(grads.k, at, true);
        if (latent_queries)
            contract(queries(at), grads.q,
                     d_outputs->col_range(0, saved.latent.cols - d_kv_a.cols));
        of_queries.end();
        keys_backward(at, grads, d_kv_a);
    }
    tools_.linear.backward_b(qkv, d_outputs, tools_.columns_of(qkv, saved.s_qkv));
    const PerLinear y{latent_queries ? queries(at).x : TensorView{},
                      outputs_of_kv_a(at, saved.latent)};
    branch.project_backward(
        qkv, {d_outputs}, saved.s_qkv,
        [&](int i, const TensorView&) {
            return LoraLinear::has_bias_of(qkv, i) ? TensorView{} : y[static_cast<std::size_t>(i)];
        },
        need_dx);
}

}  // namespace loratrain
