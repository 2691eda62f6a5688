#include "plan/memory/kind_memory.h"

#include <algorithm>
#include <variant>

#include "base/arithmetic.h"
#include "base/operators.h"
#include "config/layer_tensors.h"

namespace loratrain {

namespace {

/// Collects the matrices of KindScratch that some layer needs. A matrix is as large as the layer
/// with the largest one needs it.
class ScratchSizes {
  public:
    ScratchSizes(const ReplicaView& view, ScratchMatrices& needed)
        : compute_(view.plan.compute), needed_(needed) {}

    void add(ScratchMatrix& matrix, const char* name, std::int64_t rows, std::int64_t columns) {
        add(matrix, name, rows, columns, compute_);
    }
    void add(ScratchMatrix& matrix, const char* name, std::int64_t rows, std::int64_t columns,
             DType dtype) {
        if (matrix.name == nullptr) needed_.add(&matrix);
        matrix = {name, std::max(rows, matrix.rows), std::max(columns, matrix.columns), dtype};
    }

  private:
    DType compute_;
    ScratchMatrices& needed_;
};

// ---- Attention

void add_saved(const AttentionSpec& attention, const ReplicaView& view, LayerActivations& layer,
               SavedArrays& arrays) {
    const std::int64_t r = view.replica.saved_columns;
    const std::int64_t q = attention.q_size();
    const std::int64_t kv = attention.kv_size();
    AttentionActivations& saved = layer.attention;
    arrays.add(saved.qkv, {q + 2 * kv});
    if (attention.qk_norm) arrays.add(saved.qk_raw, {q + kv});
    arrays.add(saved.o, {q, attention.latent ? 0 : r});
    arrays.add(saved.lse, {attention.heads}, DType::f32);
    arrays.add(saved.s_qkv, {group_shape(view.lane_model, LinearGroup::qkv).count * r});
    if (attention.latent) {
        const LatentSpec& latent = *attention.latent;
        arrays.add(saved.latent, {latent.q_rank + latent.kv_rank + latent.rope_dim});
        arrays.add(saved.s_heads, {2 * r});
        arrays.add(saved.s_o, {r});
    }
    if (!attention.output_gate) return;
    arrays.add(saved.gates, {q});
    arrays.add(saved.seen, {q});
}

void add_cached(const AttentionSpec& attention, std::int64_t /*texts*/, const ReplicaView& /*view*/,
                LayerCache& cache, SavedArrays& arrays) {
    arrays.add(cache.keys, {attention.kv_size()});
    arrays.add(cache.values, {attention.kv_size()});
}

std::uint64_t held_beside_linears(const AttentionSpec& /*attention*/, const ReplicaView& /*view*/) {
    return 0;
}

void add_scratch(const AttentionSpec& attention, const ReplicaView& view, KindScratch& scratch,
                 ScratchSizes& sizes) {
    const std::int64_t t = view.replica.microbatch_tokens;
    if (attention.qk_norm_whole && view.replica.tensor > 1) {
        sizes.add(scratch.attention.norm_sums, "sums of norms", 2 * t, 2, DType::f32);
    }
    if (attention.latent) {
        const LinearGroupShape rows = group_shape(view.lane_model, LinearGroup::qkv);
        sizes.add(scratch.attention.heads, "heads of latent rows", t, 3 * attention.q_size());
        sizes.add(scratch.attention.d_latent, "gradients of latent rows", t,
                  rows.out + rows.count * view.replica.saved_columns);
    }
    if (!attention.output_gate) return;
    sizes.add(scratch.attention.gated, "queries and gates", t, 2 * attention.q_size());
}

// ---- Gated delta net

/// Columns of what its linears make.
std::int64_t made_size(const DeltaNetSpec& net) {
    return net.conv_size() + net.value_size() + 2 * net.value_heads;
}

void add_saved(const DeltaNetSpec& net, const ReplicaView& view, LayerActivations& layer,
               SavedArrays& arrays) {
    const std::int64_t r = view.replica.saved_columns;
    DeltaNetActivations& saved = layer.delta_net;
    arrays.add(saved.made, {made_size(net)});
    arrays.add(saved.o, {net.value_size()});
    arrays.add(saved.s_in, {group_shape(view.lane_model, LinearGroup::delta_in).count * r});
    arrays.add(saved.s_out, {r});
}

void add_cached(const DeltaNetSpec& net, std::int64_t texts, const ReplicaView& view,
                LayerCache& cache, SavedArrays& arrays) {
    const std::int64_t conv_rows = texts * (net.conv_width - 1);
    arrays.add_bytes(cache.states, aligned_array(texts * net.state_size(), size_of(DType::f32)));
    arrays.add_bytes(cache.conv_rows,
                     aligned_array(conv_rows * net.conv_size(), compute_bytes(view.plan)));
}

std::uint64_t held_beside_linears(const DeltaNetSpec& /*net*/, const ReplicaView& /*view*/) {
    return 0;
}

void add_scratch(const DeltaNetSpec& net, const ReplicaView& view, KindScratch& all,
                 ScratchSizes& sizes) {
    const std::int64_t t = view.replica.microbatch_tokens;
    DeltaNetScratch& scratch = all.delta_net;
    sizes.add(scratch.mixed, "convolved rows", t, net.conv_size());
    sizes.add(scratch.d_mixed, "gradients of convolved rows", t, net.conv_size());
    sizes.add(scratch.gates, "gates of a delta net", 4 * t, net.value_heads, DType::f32);
    sizes.add(scratch.states, "states of a delta net", delta_states(t), net.state_size(),
              DType::f32);
    if (net.are_by_kind()) return;
    sizes.add(scratch.ordered, "outputs of a delta net's linears", t, made_size(net));
}

// ---- Dense MLP

void add_saved(const DenseSpec& /*dense*/, const ReplicaView& view, LayerActivations& layer,
               SavedArrays& arrays) {
    const std::int64_t r = view.replica.saved_columns;
    const LinearGroupShape gate_up = group_shape(view.lane_model, LinearGroup::gate_up);
    DenseActivations& saved = layer.dense;
    arrays.add(saved.gate_up, {gate_up.out});
    arrays.add(saved.s_gate_up, {gate_up.count * r});
    arrays.add(saved.s_down, {r});
}

std::uint64_t held_beside_linears(const DenseSpec& /*dense*/, const ReplicaView& /*view*/) {
    return 0;
}

void add_scratch(const DenseSpec& /*dense*/, const ReplicaView& /*view*/, KindScratch& /*scratch*/,
                 ScratchSizes& /*sizes*/) {}

// ---- Experts

void add_saved(const ExpertSpec& experts, const ReplicaView& view, LayerActivations& layer,
               SavedArrays& arrays) {
    ExpertActivations& saved = layer.experts;
    arrays.add(saved.gate_up, {2 * experts.size, 0, experts.per_token});
    if (view.plan.expert_lora) {
        arrays.add(saved.s_gate_up, {2 * view.replica.saved_columns, 0, experts.per_token});
        arrays.add(saved.s_down, {view.replica.saved_columns, 0, experts.per_token});
    }
    arrays.add_bytes(saved.routes, routes_layout(view, experts).bytes);
    if (!experts.has_shared()) return;
    const std::int64_t r = view.replica.saved_columns;
    const LinearGroupShape gate_up = group_shape(view.lane_model, LinearGroup::shared_gate_up);
    arrays.add(saved.shared.gate_up, {gate_up.out});
    arrays.add(saved.shared.s_gate_up, {gate_up.count * r});
    arrays.add(saved.shared.s_down, {r});
    if (experts.shared_gate) {
        arrays.add_bytes(saved.shared_routes, shared_routes_layout(view).bytes);
    }
}

std::uint64_t held_beside_linears(const ExpertSpec& experts, const ReplicaView& view) {
    const std::int64_t hidden = view.lane_model.hidden_size;
    return experts_bytes(view.plan, experts_gate_up_shape(experts, hidden)) +
           experts_bytes(view.plan, experts_down_shape(experts, hidden));
}

void add_shared_scratch(const ExpertSpec& experts, const ReplicaView& view, ExpertScratch& scratch,
                        ScratchSizes& sizes) {
    const std::int64_t hidden = view.lane_model.hidden_size;
    const std::int64_t t = view.replica.microbatch_tokens;
    const std::int64_t r = view.replica.saved_columns;
    sizes.add(scratch.shared_product, "products of a shared expert", t, experts.shared_size + r);
    sizes.add(scratch.shared_inner, "inner gradients of a shared expert", t, experts.shared_size);
    if (!experts.shared_gate) return;
    sizes.add(scratch.shared_out, "outputs of a shared expert", t, hidden);
    sizes.add(scratch.shared_d_out, "gradients of a shared expert", t, hidden + r);
}

void add_scratch(const ExpertSpec& experts, const ReplicaView& view, KindScratch& all,
                 ScratchSizes& sizes) {
    const std::int64_t hidden = view.lane_model.hidden_size;
    const std::int64_t t = view.replica.microbatch_tokens;
    const std::int64_t copies = t * experts.per_token;
    ExpertScratch& scratch = all.experts;
    sizes.add(scratch.logits, "logits of a router", t, experts.count, DType::f32);
    sizes.add(scratch.d_logits, "gradients of a router's logits", t, experts.count);
    sizes.add(scratch.rows, "rows of experts", copies, hidden);
    sizes.add(scratch.product, "products of experts", copies, experts.size);
    if (!joins_experts(view, experts)) {
        sizes.add(scratch.inner, "inner gradients of experts", copies, experts.size);
    }
    sizes.add(scratch.gradient, "gradients of experts", copies, 2 * experts.size);
    sizes.add(scratch.weights, "gradients of a router's weights", copies, 1, DType::f32);
    if (experts.has_shared()) add_shared_scratch(experts, view, scratch, sizes);
    if (view.plan.fp8_linears) {
        const std::int64_t widest = std::max(hidden, 2 * experts.size);
        const auto numbers = static_cast<std::int64_t>(size_of(DType::f32));
        sizes.add(scratch.codes, "codes of rows of experts", copies, widest / numbers, DType::f32);
        sizes.add(scratch.code_scales, "scales of these codes", copies, 1, DType::f32);
    }
    if (!view.plan.expert_lora) return;
    const std::int64_t r = view.replica.saved_columns;
    sizes.add(scratch.ds, "LoRA gradients of experts", copies, 2 * r);
}

// ---- Any layer

std::uint64_t tensor_and_bias_bytes(const ReplicaView& view, const LayerSpec& layer) {
    const std::uint64_t e = compute_bytes(view.plan);
    const std::int64_t hidden = view.lane_model.hidden_size;
    std::uint64_t bytes = 0;
    for (int i = 0; i < layer_tensor_count; ++i) {
        const auto tensor = static_cast<LayerTensor>(i);
        if (is_on_host(tensor)) continue;
        bytes += aligned_array(layer_tensor_shape(layer, hidden, tensor).elements(),
                               is_f32(tensor) ? size_of(DType::f32) : e);
    }
    for (int i = 0; i < linear_count; ++i) {
        const LayerLinear linear = linear_of(layer, hidden, static_cast<Linear>(i));
        if (linear.bias) bytes += aligned_array(linear.shape.out, e);
    }
    return bytes;
}

}  // namespace

std::uint64_t SavedArray::bytes_of(std::int64_t tokens) const {
    const std::int64_t elements = tokens * rows * (columns + pad);
    return static_cast<std::uint64_t>(elements) * size_of(dtype) + (tokens > 0 ? fixed : 0);
}

void SavedArrays::add(TensorView& view, const Size& size, DType dtype) {
    const SavedArray& array =
        arrays_.add({&view, nullptr, bytes_, dtype, size.columns, size.pad, size.rows});
    bytes_ += aligned(array.bytes_of(tokens_));
}

void SavedArrays::add_bytes(void*& at, std::uint64_t bytes) {
    arrays_.add({.bytes_at = &at, .offset = bytes_, .fixed = bytes});
    bytes_ += bytes;
}

void SavedArrays::place(char* start, std::int64_t tokens) const {
    for (const SavedArray& array : arrays_) {
        char* data = start + array.offset;
        if (array.view == nullptr) {
            *array.bytes_at = data;
            continue;
        }
        *array.view = {data, array.dtype, tokens * array.rows, array.columns,
                       array.columns + array.pad};
    }
}

SavedArrays saved_arrays(const ReplicaView& view, const LayerSpec& layer, LayerActivations& saved) {
    SavedArrays arrays(view.replica.microbatch_tokens, view.plan.compute);
    const auto add = [&](const auto& kind) { add_saved(kind, view, saved, arrays); };
    std::visit(add, layer.mixer);
    const std::int64_t hidden = view.lane_model.hidden_size;
    arrays.add(saved.x2, {hidden});
    const bool after = layer.norms.has_after();
    if (after || view.plan.dora_outputs) arrays.add(saved.mixer_made, {hidden});
    if (after || (view.plan.dora_outputs && layer.experts() == nullptr)) {
        arrays.add(saved.mlp_made, {hidden});
    }
    std::visit(add, layer.mlp);
    return arrays;
}

SavedArrays cached_arrays(const TextRoom& room, const ReplicaView& view, const LayerSpec& layer,
                          LayerCache& cache) {
    SavedArrays arrays(room.tokens, view.plan.compute);
    std::visit([&](const auto& kind) { add_cached(kind, room.texts, view, cache, arrays); },
               layer.mixer);
    return arrays;
}

ScratchMatrices kind_scratch(const ReplicaView& view, KindScratch& scratch) {
    ScratchMatrices needed;
    ScratchSizes sizes(view, needed);
    const auto add = [&](const auto& kind) { add_scratch(kind, view, scratch, sizes); };
    for (const LayerSpec& layer : view.lane_model.descriptions) {
        std::visit(add, layer.mixer);
        std::visit(add, layer.mlp);
    }
    return needed;
}

std::uint64_t held_bytes(const ReplicaView& view, const LayerSpec& layer) {
    const auto of = [&](const auto& kind) { return held_beside_linears(kind, view); };
    return tensor_and_bias_bytes(view, layer) + std::visit(of, layer.mixer) +
           std::visit(of, layer.mlp);
}

std::int64_t largest_product(const LayerSpec& layer, std::int64_t hidden_size) {
    const ExpertSpec* experts = layer.experts();
    if (experts == nullptr) return 0;
    return std::max(experts_gate_up_shape(*experts, hidden_size).elements(),
                    experts_down_shape(*experts, hidden_size).elements());
}

std::int64_t widest_product(const ReplicaView& view, const LayerSpec& layer) {
    const ExpertSpec* experts = layer.experts();
    if (experts == nullptr) return 0;
    const std::int64_t of_expert = joins_experts(view, *experts) ? 0 : 2 * experts->size;
    const std::int64_t of_router = 2 * experts->count;  // fp32, where the others are bf16
    return view.lane_model.hidden_size + std::max(of_expert, of_router);
}

}  // namespace loratrain
