#include "model/decoder_layer.h"

namespace loratrain {

namespace {

TensorView pad_of(const TensorView& x, std::int64_t width) {
    return {x.offset(0, x.cols), x.dtype, x.rows, width, x.ld};
}

}  // namespace

DecoderLayer::DecoderLayer(const ReplicaView& view, const AdapterBank& bank,
                           const Workspace& workspace, const RotaryTables& rotary, Backend& backend,
                           const StageLanes& lanes)
    : view_(view),
      workspace_(workspace),
      rotary_(rotary),
      backend_(backend),
      lanes_(lanes),
      linear_(view, bank, workspace, backend, lanes),
      experts_(view, bank, workspace, backend) {}

DecoderLayer::Heads DecoderLayer::split_heads(const TensorView& qkv) const {
    const std::int64_t q = view_.lane_model.q_size();
    const std::int64_t kv = view_.lane_model.kv_size();
    return {qkv.col_range(0, q), qkv.col_range(q, kv), qkv.col_range(q + kv, kv)};
}

TensorView DecoderLayer::queries_and_keys(const TensorView& qkv) const {
    return qkv.col_range(0, view_.lane_model.q_size() + view_.lane_model.kv_size());
}

std::array<TensorView, 3> DecoderLayer::by_linear(const LinearGroupShape& group,
                                                  const TensorView& y) const {
    std::array<TensorView, 3> parts;
    std::int64_t first = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(group.count); ++i) {
        const std::int64_t out = linear_shape(view_.lane_model, group.linears[i]).out;
        parts[i] = y.col_range(first, out);
        first += out;
    }
    return parts;
}

std::array<TensorView, 3> DecoderLayer::columns_of(const LoraLinear::Site& at,
                                                   const TensorView& s) const {
    std::array<TensorView, 3> parts;
    for (int i = 0; i < at.weights.shape.count; ++i) {
        parts[static_cast<std::size_t>(i)] =
            s.col_range(i * view_.replica.saved_columns, at.rows.width);
    }
    return parts;
}

LoraLinear::Site DecoderLayer::site(std::int32_t layer, LayerWeights& weights, LinearGroup group,
                                    const LayerRows& rows) const {
    return {weights.groups[static_cast<std::size_t>(group)], group, layer, rows};
}

void DecoderLayer::pack(std::span<const Computed> layers) {
    packed_.clear();
    for (const Computed& of : layers) {
        for (int g = 0; g < linear_group_count; ++g) {
            packed_.push_back(site(of.layer, of.weights, static_cast<LinearGroup>(g), of.rows));
        }
    }
    linear_.pack_all(packed_);
}

Attention DecoderLayer::attention_op(const LayerSpec& spec, const LayerActivations& saved,
                                     const LayerRows& rows) const {
    const Heads heads = split_heads(saved.qkv);
    Attention op;
    op.q = heads.q;
    op.k = heads.k;
    op.v = heads.v;
    op.o = saved.o;
    op.lse = saved.lse;
    op.head_dim = view_.lane_model.head_dim;
    op.scale = static_cast<float>(view_.lane_model.attention_scale(spec));
    op.rows = rows.packed;
    op.sliding_window = spec.sliding_window;
    op.soft_cap = static_cast<float>(view_.lane_model.attention_soft_cap);
    return op;
}

void DecoderLayer::attend(std::int32_t layer, const Attention& op) {
    if (cache_ != nullptr) return cache_->attend(layer, op, cached_rows_);
    backend_.attention(op);
}

void DecoderLayer::make_input(const TensorView& x, const Buffer& weight, const TensorView& y,
                              const RowCodes& codes) {
    if (!view_.lane_model.has_norms_before()) return backend_.copy(y, x);
    const auto eps = static_cast<float>(view_.lane_model.stream_eps());
    backend_.rms_norm({x, weight.data(), eps, 1, y, codes, norm_offset()});
}

void DecoderLayer::norm_backward(const TensorView& x, const Buffer& weight, const TensorView& dy,
                                 const TensorView& dx, bool accumulate, const TensorView& scaled) {
    const auto eps = static_cast<float>(view_.lane_model.stream_eps());
    backend_.rms_norm_backward(
        {x, weight.data(), eps, 1, dy, dx, accumulate, scaled, norm_offset()});
}

TensorView DecoderLayer::before_norm(const TensorView& made, const Buffer& weight,
                                     const TensorView& dx) {
    if (!view_.lane_model.has_norms_after()) return dx;
    const TensorView d_made = workspace_.branch(dx.rows);
    backend_.rms_norm_backward({made,
                                weight.data(),
                                static_cast<float>(view_.lane_model.rms_norm_eps),
                                1,
                                dx,
                                d_made,
                                false,
                                {},
                                norm_offset()});
    return d_made;
}

void DecoderLayer::backward_to_norm(const LoraLinear::Site& at, const Normed& of,
                                    LoraLinear::Codes codes, bool need_dx) {
    TensorView dh = of.dx;
    if (need_dx) {
        dh = workspace_.inner(of.x.rows, of.x.cols);
        linear_.backward_x(at, of.dy, dh, codes);
        lanes_.all->all_reduce(dh);
    }
    if (!view_.lane_model.has_norms_before()) {
        if (need_dx) backend_.add(of.dx, dh);
        return linear_.backward_a(at, of.x, of.dy);
    }
    const bool lora = linear_.has_lora(at);
    if (!need_dx && !lora) return;
    norm_backward(of.x, of.weight, dh, of.dx, need_dx,
                  lora ? LoraLinear::ds_of_group(at, of.dy) : TensorView{});
    linear_.backward_a(at, of.x, of.dy, of.weight.data(), norm_offset());
}

TensorView DecoderLayer::normed_input(std::int64_t tokens) const {
    const std::int64_t hidden = view_.lane_model.hidden_size;
    return workspace_.input(tokens, hidden, hidden + view_.replica.saved_columns);
}

TensorView DecoderLayer::group_input(LinearGroup group, std::int64_t tokens) const {
    const std::int64_t hidden = view_.lane_model.hidden_size;
    const std::int64_t columns = column_blocks(view_, group) * view_.replica.saved_columns;
    return workspace_.input(tokens, hidden, hidden + columns);
}

std::int64_t DecoderLayer::norm_groups(const TensorView& q_or_k) const {
    const ModelSpec& model = view_.lane_model;
    return model.qk_norm_whole ? 1 : q_or_k.cols / model.head_dim;
}

void DecoderLayer::head_norm(const TensorView& x, const Buffer& weight, const TensorView& y) {
    const auto eps = static_cast<float>(view_.lane_model.rms_norm_eps);
    backend_.rms_norm({x, weight.data(), eps, norm_groups(x), y, {}, norm_offset()});
}

void DecoderLayer::head_norm_backward(const TensorView& x, const Buffer& weight,
                                      const TensorView& dy) {
    const auto eps = static_cast<float>(view_.lane_model.rms_norm_eps);
    backend_.rms_norm_backward(
        {x, weight.data(), eps, norm_groups(x), dy, dy, false, {}, norm_offset()});
}

void DecoderLayer::rope(const TensorView& x, const LayerSpec& spec, const LayerRows& rows,
                        bool backward, std::int64_t queries) {
    if (!spec.rope) return;
    const ModelSpec& model = view_.lane_model;
    const RopeSpec& rotation = model.rope_of(spec);
    Rope op{x, model.head_dim, rotary_.of(spec), rows.packed.positions, backward};
    op.rotary_dim = model.rotary_dim(rotation);
    op.interleaved = rotation.interleaved;
    if (rotation.rotated < 1.0) op.length = static_cast<float>(rotation.attention_factor);
    if (rotation.query_beta != 0.0) {
        op.scaled_columns = queries;
        op.scale_beta = static_cast<float>(rotation.query_beta);
        op.scale_period = static_cast<float>(rotation.original_max_position);
    }
    backend_.rope(op);
}

void DecoderLayer::project_qkv(const LoraLinear::Site& at, LayerWeights& weights,
                               const LayerActivations& saved) {
    const ModelSpec& model = view_.lane_model;
    const std::int64_t t = saved.x.rows;
    const TensorView h = group_input(LinearGroup::qkv, t);
    make_input(saved.x, weights.attention_norm, h, linear_.coding_of_input(t, h.cols));
    const Heads heads = split_heads(saved.qkv);
    std::array<TensorView, 3> y = by_linear(at.weights.shape, saved.qkv);
    if (model.qk_norm) {
        y[0] = saved.qk_raw.col_range(0, model.q_size());
        y[1] = saved.qk_raw.col_range(model.q_size(), model.kv_size());
    }
    linear_.forward(at, h, y, columns_of(at, saved.s_qkv), {}, codes_of_input());
    if (model.qk_norm) {
        head_norm(y[0], weights.q_norm, heads.q);
        head_norm(y[1], weights.k_norm, heads.k);
    }
    rope(queries_and_keys(saved.qkv), weights.spec, at.rows, false, model.q_size());
}

void DecoderLayer::add_over_lanes(const LoraLinear::Site& at, const TensorView& x,
                                  const Branch& branch, const TensorView& s,
                                  LoraLinear::Codes codes, LoraLinear::Sums sums) {
    const ModelSpec& model = view_.lane_model;
    const bool normed = model.has_norms_after();
    const TensorView& made = normed ? branch.made : branch.sum;
    const bool adds = !normed && lanes_.is_first();
    linear_.forward(at, x, {made, {}, {}}, {s, {}, {}}, adds ? branch.residual : TensorView{},
                    codes, sums);
    lanes_.all->all_reduce(made);
    if (!normed || branch.sum.data == nullptr) return;
    backend_.rms_norm({made,
                       branch.weight.data(),
                       static_cast<float>(model.rms_norm_eps),
                       1,
                       branch.sum,
                       {},
                       norm_offset(),
                       branch.residual});
}

void DecoderLayer::attention_block(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                                   const LayerActivations& saved) {
    project_qkv(site(layer, weights, LinearGroup::qkv, rows), weights, saved);
    attend(layer, attention_op(weights.spec, saved, rows));
    add_over_lanes(site(layer, weights, LinearGroup::o, rows), saved.o,
                   {saved.x, saved.x2, saved.attention_made, weights.after_attention},
                   pad_of(saved.o, rows.width), LoraLinear::Codes::to_make);
}

void DecoderLayer::activate(const LayerWeights& weights, const TensorView& made,
                            const TensorView& product) {
    if (view_.lane_model.has_gate()) return backend_.swiglu(swiglu_op(made, product));
    backend_.xielu({made, weights.xielu_positive, weights.xielu_negative, product,
                    linear_.coding_of_input(made.rows, product.cols)});
}

SwiGlu DecoderLayer::swiglu_op(const TensorView& made, const TensorView& product) const {
    const std::int64_t f = view_.lane_model.intermediate_size;
    return {made.col_range(0, f), made.col_range(f, f), product,
            linear_.coding_of_input(made.rows, f), view_.lane_model.activation};
}

SwiGluBackward DecoderLayer::swiglu_backward_op(const TensorView& made, const TensorView& d_product,
                                                const TensorView& d_made, const TensorView& product,
                                                const RowCodes& codes) const {
    const std::int64_t f = view_.lane_model.intermediate_size;
    return {made.col_range(0, f),
            made.col_range(f, f),
            d_product,
            d_made.col_range(0, f),
            d_made.col_range(f, f),
            product,
            codes,
            view_.lane_model.activation};
}

void DecoderLayer::activate_backward(const LayerWeights& weights, const TensorView& made,
                                     const TensorView& d_product, const TensorView& d_made,
                                     const TensorView& product, const RowCodes& codes) {
    if (!view_.lane_model.has_gate()) {
        return backend_.xielu_backward({made, weights.xielu_positive, weights.xielu_negative,
                                        d_product, d_made, product, codes});
    }
    backend_.swiglu_backward(swiglu_backward_op(made, d_product, d_made, product, codes));
}

DecoderLayer::Product DecoderLayer::gated_product(std::int32_t layer, LayerWeights& weights,
                                                  const LayerRows& rows,
                                                  const LayerActivations& saved) {
    const ModelSpec& model = view_.lane_model;
    const std::int64_t r = view_.replica.saved_columns;
    const std::int64_t t = saved.x.rows;
    const TensorView h2 = group_input(LinearGroup::gate_up, t);
    make_input(saved.x2, weights.mlp_norm, h2, linear_.coding_of_input(t, h2.cols));
    const LoraLinear::Site at = site(layer, weights, LinearGroup::gate_up, rows);
    linear_.forward(at, h2, by_linear(at.weights.shape, saved.gate_up),
                    columns_of(at, saved.s_gate_up), {}, codes_of_input());
    const std::int64_t f = model.intermediate_size;
    const Product product{workspace_.input(t, f, f + r), saved.s_down.col_range(0, rows.width),
                          LoraLinear::Sums::made};
    const LoraLinear::Site down = site(layer, weights, LinearGroup::down, rows);
    if (model.has_gate() &&
        linear_.shrink_gated(down, swiglu_op(saved.gate_up, product.h), product.s)) {
        return product;
    }
    activate(weights, saved.gate_up, product.h);
    return {product.h, product.s, LoraLinear::Sums::to_make};
}

void DecoderLayer::forward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                           const LayerActivations& saved, const TensorView& y) {
    attention_block(layer, weights, rows, saved);
    if (view_.lane_model.has_experts()) {
        const ExpertMlp::Site at{weights.experts, layer, rows};
        make_expert_rows(at, weights, saved);
        return experts_.forward(at, saved, y);
    }
    const Product product = gated_product(layer, weights, rows, saved);
    add_over_lanes(site(layer, weights, LinearGroup::down, rows), product.h,
                   {saved.x2, y, saved.mlp_made, weights.after_mlp}, product.s,
                   LoraLinear::Codes::made, product.sums);
}

void DecoderLayer::recompute(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                             const LayerActivations& saved) {
    attention_block(layer, weights, rows, saved);
    if (view_.lane_model.has_experts()) {
        return make_expert_rows({weights.experts, layer, rows}, weights, saved);
    }
    const Product product = gated_product(layer, weights, rows, saved);
    const LoraLinear::Site down = site(layer, weights, LinearGroup::down, rows);
    if (view_.lane_model.has_norms_after()) {
        add_over_lanes(down, product.h, {saved.x2, {}, saved.mlp_made, weights.after_mlp},
                       product.s, LoraLinear::Codes::made, product.sums);
    } else if (product.sums == LoraLinear::Sums::to_make) {
        linear_.shrink(down, product.h, {product.s, {}, {}});
    }
}

void DecoderLayer::backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                            const LayerActivations& saved, bool need_dx) {
    if (view_.lane_model.has_experts()) {
        experts_backward({weights.experts, layer, rows}, weights, saved);
    } else {
        mlp_backward(layer, weights, rows, saved);
    }
    attention_block_backward(layer, weights, rows, saved, need_dx);
}

void DecoderLayer::make_expert_rows(const ExpertMlp::Site& at, const LayerWeights& weights,
                                    const LayerActivations& saved) {
    const TensorView h2 = normed_input(saved.x2.rows);
    make_input(saved.x2, weights.mlp_norm, h2);
    experts_.make_gate_up(at, h2, saved);
}

void DecoderLayer::experts_backward(const ExpertMlp::Site& at, const LayerWeights& weights,
                                    const LayerActivations& saved) {
    const std::int64_t t = saved.x2.rows;
    const TensorView dx = workspace_.residual(at.rows.first_row, t);
    const TensorView dh2 = workspace_.inner(t, saved.x2.cols);
    const TensorView h2 = normed_input(t);
    if (experts_.needs_input(at, saved)) make_input(saved.x2, weights.mlp_norm, h2);
    experts_.backward(at, saved, h2, dx, dh2);
    norm_backward(saved.x2, weights.mlp_norm, dh2, dx, true, {});
}

void DecoderLayer::mlp_backward(std::int32_t layer, LayerWeights& weights, const LayerRows& rows,
                                const LayerActivations& saved) {
    const ModelSpec& model = view_.lane_model;
    const std::int64_t r = view_.replica.saved_columns;
    const std::int64_t t = saved.x.rows;
    const std::int64_t f = model.intermediate_size;
    const TensorView dx = workspace_.residual(rows.first_row, t);

    const LoraLinear::Site down = site(layer, weights, LinearGroup::down, rows);
    const TensorView d_made = before_norm(saved.mlp_made, weights.after_mlp, dx);
    linear_.backward_b(down, d_made, columns_of(down, saved.s_down));
    const TensorView d_product = workspace_.inner(t, f);
    const LoraLinear::Site gate_up = site(layer, weights, LinearGroup::gate_up, rows);
    const std::int64_t out = gate_up.weights.shape.out;
    const TensorView d_gate_up = workspace_.gradient(t, out, out + gate_up.weights.shape.count * r);
    const TensorView product = workspace_.input(t, f, f + r);
    const RowCodes codes = linear_.coding_of_gradient(gate_up, t);
    LoraLinear::Gated around{down, d_made, gate_up, columns_of(gate_up, saved.s_gate_up), {}};
    if (model.has_gate()) {
        around.product = swiglu_backward_op(saved.gate_up, d_product, d_gate_up, product, codes);
    }
    const bool spares_down = linear_.spares_down(around);
    linear_.backward_x(
        down, d_made, d_product, LoraLinear::Codes::to_make,
        spares_down ? LoraLinear::Factors::left_out : LoraLinear::Factors::multiplied);
    if (!linear_.backward_gated(around, spares_down)) {
        activate_backward(weights, saved.gate_up, d_product, d_gate_up, product, codes);
        linear_.backward_a(down, product, d_made);
        linear_.backward_m(down, 0, product, d_made, columns_of(down, saved.s_down), product);
        linear_.backward_b(gate_up, d_gate_up, around.s);
    }
    const Normed of{saved.x2, weights.mlp_norm, d_gate_up, dx};
    if (linear_.has_dora(gate_up)) {
        const TensorView h2 = normed_input(t);
        make_input(of.x, of.weight, h2);
        const std::array<TensorView, 3> y = by_linear(gate_up.weights.shape, saved.gate_up);
        for (int i = 0; i < gate_up.weights.shape.count; ++i) {
            const bool lost = linear_.backward_m(
                gate_up, i, h2, d_gate_up, columns_of(gate_up, saved.s_gate_up), h2,
                LoraLinear::has_bias_of(gate_up, i) ? TensorView{}
                                                    : y[static_cast<std::size_t>(i)]);
            if (lost) make_input(of.x, of.weight, h2);
        }
    }
    backward_to_norm(gate_up, of, LoraLinear::Codes::made, true);
}

TensorView DecoderLayer::projected(const LoraLinear::Site& qkv, int i, const LayerSpec& spec,
                                   const LayerActivations& saved) {
    const ModelSpec& model = view_.lane_model;
    if (LoraLinear::has_bias_of(qkv, i) || model.fused_qkv) return {};
    const Heads heads = split_heads(saved.qkv);
    if (i == 2) return heads.v;
    if (model.qk_norm) {
        return i == 0 ? saved.qk_raw.col_range(0, model.q_size())
                      : saved.qk_raw.col_range(model.q_size(), model.kv_size());
    }
    const TensorView& rotated = i == 0 ? heads.q : heads.k;
    if (!spec.rope) return rotated;
    if (i == 0 && model.rope_of(spec).query_beta != 0.0) return {};
    if (model.rope_of(spec).rotated < 1.0) return {};
    const TensorView y = workspace_.inner(rotated.rows, rotated.cols);
    backend_.copy(y, rotated);
    rope(y, spec, qkv.rows, true, 0);
    return y;
}

void DecoderLayer::attention_block_backward(std::int32_t layer, LayerWeights& weights,
                                            const LayerRows& rows, const LayerActivations& saved,
                                            bool need_dx) {
    const ModelSpec& model = view_.lane_model;
    const std::int64_t r = view_.replica.saved_columns;
    const std::int64_t width = rows.width;
    const std::int64_t t = saved.x.rows;
    const TensorView dx = workspace_.residual(rows.first_row, t);

    const LoraLinear::Site o = site(layer, weights, LinearGroup::o, rows);
    const TensorView d_made = before_norm(saved.attention_made, weights.after_attention, dx);
    linear_.backward_b(o, d_made, {pad_of(saved.o, width), {}, {}});
    linear_.backward_a(o, saved.o, d_made);
    linear_.backward_m(o, 0, saved.o, d_made, {pad_of(saved.o, width), {}, {}},
                       workspace_.gradient(t, saved.o.cols, saved.o.cols));
    const TensorView d_o = workspace_.inner(t, model.q_size());
    linear_.backward_x(o, d_made, d_o);

    const LoraLinear::Site qkv = site(layer, weights, LinearGroup::qkv, rows);
    const TensorView d_qkv =
        workspace_.gradient(t, saved.qkv.cols, saved.qkv.cols + qkv.weights.shape.count * r);
    const Heads grads = split_heads(d_qkv);
    backend_.attention_backward(
        {attention_op(weights.spec, saved, rows), d_o, grads.q, grads.k, grads.v});
    rope(queries_and_keys(d_qkv), weights.spec, rows, true, model.q_size());
    if (model.qk_norm) {
        head_norm_backward(saved.qk_raw.col_range(0, model.q_size()), weights.q_norm, grads.q);
        head_norm_backward(saved.qk_raw.col_range(model.q_size(), model.kv_size()), weights.k_norm,
                           grads.k);
    }

    linear_.backward_b(qkv, d_qkv, columns_of(qkv, saved.s_qkv));
    const Normed of{saved.x, weights.attention_norm, d_qkv, dx};
    if (linear_.has_dora(qkv)) {
        const TensorView h = normed_input(t);
        make_input(of.x, of.weight, h);
        for (int i = 0; i < qkv.weights.shape.count; ++i) {
            const bool lost = linear_.backward_m(qkv, i, h, d_qkv, columns_of(qkv, saved.s_qkv), h,
                                                 projected(qkv, i, weights.spec, saved));
            if (lost) make_input(of.x, of.weight, h);
        }
    }
    backward_to_norm(qkv, of, LoraLinear::Codes::to_make, need_dx);
}

}  // namespace loratrain
