#include "config/linears.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "config/model_spec.h"

namespace loratrain {

namespace {

using Shape = std::optional<LinearShape>;

/// A linear that a kind of mixer or MLP may have.
template <class Kind>
struct LinearRow {
    Linear linear;
    const char* name;  ///< PEFT's
    LinearGroup group;
    LaneCut cut;
    bool Kind::*bias;                                  ///< null: never
    Shape (*shape)(const Kind&, std::int64_t hidden);  ///< none: this one does not have it
    const char* block = "";                            ///< "": the table's
    PartSizes (*parts)(const Kind&) = nullptr;         ///< null: one (LayerLinear::parts)
};

constexpr Shape only_if(bool has, std::int64_t in, std::int64_t out) {
    return has ? Shape{{in, out}} : std::nullopt;
}

bool has_latent_queries(const AttentionSpec& attention) {
    return attention.latent && attention.latent->q_rank > 0;
}

template <class Kind>
struct LinearTable;

template <>
struct LinearTable<AttentionSpec> {
    using Of = const AttentionSpec&;
    static constexpr const char* block = "self_attn";
    static constexpr LinearRow<AttentionSpec> rows[] = {
        {Linear::q, "q_proj", LinearGroup::qkv, LaneCut::rows, &AttentionSpec::qkv_bias,
         [](Of a, std::int64_t h) {
             return only_if(!a.fused_qkv && !has_latent_queries(a), h, a.q_outputs());
         }},
        {Linear::k, "k_proj", LinearGroup::qkv, LaneCut::key_value_heads, &AttentionSpec::qkv_bias,
         [](Of a, std::int64_t h) { return only_if(!a.fused_qkv && !a.latent, h, a.kv_size()); }},
        {Linear::v, "v_proj", LinearGroup::qkv, LaneCut::key_value_heads, &AttentionSpec::qkv_bias,
         [](Of a, std::int64_t h) { return only_if(!a.fused_qkv && !a.latent, h, a.kv_size()); }},
        {Linear::qkv, "qkv_proj", LinearGroup::qkv, LaneCut::rows, &AttentionSpec::qkv_bias,
         [](Of a, std::int64_t h) { return only_if(a.fused_qkv, h, a.q_size() + 2 * a.kv_size()); },
         "", [](Of a) { return a.qkv_parts(); }},
        {Linear::latent_q_a, "q_a_proj", LinearGroup::qkv, LaneCut::rows, &AttentionSpec::qkv_bias,
         [](Of a, std::int64_t h) {
             return has_latent_queries(a) ? Shape{{h, a.latent->q_rank}} : std::nullopt;
         }},
        {Linear::latent_kv_a, "kv_a_proj_with_mqa", LinearGroup::qkv, LaneCut::rows,
         &AttentionSpec::qkv_bias,
         [](Of a, std::int64_t h) {
             return a.latent ? Shape{{h, a.latent->kv_rank + a.latent->rope_dim}} : std::nullopt;
         }},
        {Linear::latent_q_b, "q_b_proj", LinearGroup::latent_q, LaneCut::rows, nullptr,
         [](Of a, std::int64_t) {
             return has_latent_queries(a) ? Shape{{a.latent->q_rank, a.q_size()}} : std::nullopt;
         }},
        {Linear::latent_kv_b, "kv_b_proj", LinearGroup::latent_kv, LaneCut::rows, nullptr,
         [](Of a, std::int64_t) {
             return a.latent
                        ? Shape{{a.latent->kv_rank, a.heads * (a.nope_dim() + a.latent->value_dim)}}
                        : std::nullopt;
         }},
        {Linear::o, "o_proj", LinearGroup::o, LaneCut::columns, &AttentionSpec::o_bias,
         [](Of a, std::int64_t h) { return only_if(true, a.o_inputs(), h); }}};
};

template <>
struct LinearTable<DeltaNetSpec> {
    using Of = const DeltaNetSpec&;
    static constexpr const char* block = "linear_attn";
    static constexpr LinearRow<DeltaNetSpec> rows[] = {
        {Linear::delta_qkv, "in_proj_qkv", LinearGroup::delta_in, LaneCut::rows, nullptr,
         [](Of d, std::int64_t h) { return only_if(d.are_by_kind(), h, d.conv_size()); }, "",
         [](Of d) { return d.conv_parts(); }},
        {Linear::delta_z, "in_proj_z", LinearGroup::delta_in, LaneCut::rows, nullptr,
         [](Of d, std::int64_t h) { return only_if(d.are_by_kind(), h, d.value_size()); }},
        {Linear::delta_b, "in_proj_b", LinearGroup::delta_in, LaneCut::rows, nullptr,
         [](Of d, std::int64_t h) { return only_if(d.are_by_kind(), h, d.value_heads); }},
        {Linear::delta_a, "in_proj_a", LinearGroup::delta_in, LaneCut::rows, nullptr,
         [](Of d, std::int64_t h) { return only_if(d.are_by_kind(), h, d.value_heads); }},
        {Linear::delta_qkvz, "in_proj_qkvz", LinearGroup::delta_in, LaneCut::rows, nullptr,
         [](Of d, std::int64_t h) {
             return only_if(!d.are_by_kind(), h, d.conv_size() + d.value_size());
         }},
        {Linear::delta_ba, "in_proj_ba", LinearGroup::delta_in, LaneCut::rows, nullptr,
         [](Of d, std::int64_t h) { return only_if(!d.are_by_kind(), h, 2 * d.value_heads); }},
        {Linear::delta_out, "out_proj", LinearGroup::delta_out, LaneCut::columns, nullptr,
         [](Of d, std::int64_t h) { return only_if(true, d.value_size(), h); }}};
};

template <>
struct LinearTable<DenseSpec> {
    using Of = const DenseSpec&;
    static constexpr const char* block = "mlp";
    static constexpr LinearRow<DenseSpec> rows[] = {
        {Linear::gate, "gate_proj", LinearGroup::gate_up, LaneCut::rows, &DenseSpec::bias,
         [](Of m, std::int64_t h) { return only_if(!m.fused_gate_up && m.has_gate(), h, m.size); }},
        {Linear::up, "up_proj", LinearGroup::gate_up, LaneCut::rows, &DenseSpec::bias,
         [](Of m, std::int64_t h) { return only_if(!m.fused_gate_up, h, m.size); }},
        {Linear::gate_up, "gate_up_proj", LinearGroup::gate_up, LaneCut::rows, &DenseSpec::bias,
         [](Of m, std::int64_t h) { return only_if(m.fused_gate_up, h, 2 * m.size); }, "",
         [](Of m) { return m.gate_up_parts(); }},
        {Linear::down, "down_proj", LinearGroup::down, LaneCut::columns, &DenseSpec::bias,
         [](Of m, std::int64_t h) { return only_if(true, m.size, h); }}};
};

template <>
struct LinearTable<ExpertSpec> {
    using Of = const ExpertSpec&;
    static constexpr const char* block = "mlp";
    static constexpr const char* shared_block = "mlp.shared_expert";
    static constexpr LinearRow<ExpertSpec> rows[] = {
        {Linear::gate, "gate_proj", LinearGroup::gate_up, LaneCut::rows, nullptr,
         [](Of e, std::int64_t h) { return only_if(true, h, e.size); }},
        {Linear::up, "up_proj", LinearGroup::gate_up, LaneCut::rows, nullptr,
         [](Of e, std::int64_t h) { return only_if(true, h, e.size); }},
        {Linear::down, "down_proj", LinearGroup::down, LaneCut::columns, nullptr,
         [](Of e, std::int64_t h) { return only_if(true, e.size, h); }},
        {Linear::shared_gate, "gate_proj", LinearGroup::shared_gate_up, LaneCut::rows, nullptr,
         [](Of e, std::int64_t h) { return only_if(e.has_shared(), h, e.shared_size); },
         shared_block},
        {Linear::shared_up, "up_proj", LinearGroup::shared_gate_up, LaneCut::rows, nullptr,
         [](Of e, std::int64_t h) { return only_if(e.has_shared(), h, e.shared_size); },
         shared_block},
        {Linear::shared_down, "down_proj", LinearGroup::shared_down, LaneCut::columns, nullptr,
         [](Of e, std::int64_t h) { return only_if(e.has_shared(), e.shared_size, h); },
         shared_block}};
};

/// What is so of a linear in whatever layer it is.
struct LinearTraits {
    const char* name = "";
    const char* block = "";
    LinearGroup group{};
    LaneCut cut = LaneCut::rows;
};

constexpr std::size_t index_of(Linear linear) {
    return static_cast<std::size_t>(linear);
}

constexpr auto traits_of_linears = [] {
    std::array<LinearTraits, linear_count + outer_linears.size()> traits{};
    const auto take = [&](const auto& of) {
        for (const auto& row : of.rows) {
            const bool own = row.block[0] != '\0';
            traits[index_of(row.linear)] = {row.name, own ? row.block : of.block, row.group,
                                            row.cut};
        }
    };
    take(LinearTable<AttentionSpec>{});
    take(LinearTable<DeltaNetSpec>{});
    take(LinearTable<DenseSpec>{});
    take(LinearTable<ExpertSpec>{});
    traits[index_of(Linear::head)].name = "lm_head";
    traits[index_of(Linear::embedding)].name = "embed_tokens";
    return traits;
}();

TargetExperts experts_of(const ExpertSpec& experts, LinearGroup group) {
    const bool shared = group == LinearGroup::shared_gate_up || group == LinearGroup::shared_down;
    return shared ? TargetExperts{} : TargetExperts{0, static_cast<std::int32_t>(experts.held())};
}
template <class Kind>
TargetExperts experts_of(const Kind& /*one linear of each name*/, LinearGroup /*any*/) {
    return {};
}

template <class Kind>
LayerLinear linear_in(const Kind& kind, std::int64_t hidden_size, Linear linear) {
    for (const auto& row : LinearTable<Kind>::rows) {
        if (row.linear != linear) continue;
        const Shape shape = row.shape(kind, hidden_size);
        if (!shape) return {};
        return {true, *shape, row.bias != nullptr && kind.*row.bias, experts_of(kind, row.group),
                row.parts != nullptr ? row.parts(kind) : PartSizes{}};
    }
    return {};
}

bool is_in_mixer(Linear linear) {
    const LinearGroup group = linear_group(linear);
    return group == LinearGroup::qkv || group == LinearGroup::o || group == LinearGroup::delta_in ||
           group == LinearGroup::delta_out || group == LinearGroup::latent_q ||
           group == LinearGroup::latent_kv;
}

/// Where the first layer has it that has it in experts, or outside of them.
LayerLinear linear_in_model(const ModelSpec& spec, Linear linear, bool in_experts) {
    if (is_outer(linear)) return in_experts ? LayerLinear{} : target_of(spec, 0, linear);
    for (const LayerSpec& layer : spec.descriptions) {
        const LayerLinear found = linear_of(layer, spec.hidden_size, linear);
        if (found.is_there && found.is_in_experts() == in_experts) return found;
    }
    return {};
}

template <class Fits>
std::vector<std::string> names_where(const ModelSpec& spec, const Fits& fits) {
    std::vector<std::string> names;
    for (int i = 0; i < linear_count; ++i) {
        const auto linear = static_cast<Linear>(i);
        if (!fits(linear)) continue;
        std::string name = target_name(spec, linear);
        if (std::find(names.begin(), names.end(), name) == names.end()) {
            names.push_back(std::move(name));
        }
    }
    return names;
}

/// Takes the last word off the path.
std::string_view take_last(std::string_view& path) {
    const std::size_t dot = path.rfind('.');
    const bool alone = dot == std::string_view::npos;
    const std::string_view last = alone ? path : path.substr(dot + 1);
    path = alone ? std::string_view{} : path.substr(0, dot);
    return last;
}

/// With experts / of of the experts.
std::int64_t parameters(const LayerSpec& layer, std::int64_t hidden_size, std::int64_t experts,
                        std::int64_t of = 1) {
    std::int64_t count = 0;
    for (int i = 0; i < linear_count; ++i) {
        const LayerLinear linear = linear_of(layer, hidden_size, static_cast<Linear>(i));
        const std::int64_t one = linear.shape.in * linear.shape.out;
        count += linear.is_in_experts() ? one * experts / of : one;
    }
    const ExpertSpec* mixture = layer.experts();
    if (mixture == nullptr) return count;
    return count + (mixture->count + (mixture->shared_gate ? 1 : 0)) * hidden_size;
}

}  // namespace

std::int64_t outer_layer(const ModelSpec& spec, Linear linear) {
    return linear == Linear::embedding ? embedding_layer : spec.layers;
}

const char* module_name(Linear linear) {
    return traits_of_linears[index_of(linear)].name;
}

LinearGroup linear_group(Linear linear) {
    return traits_of_linears[index_of(linear)].group;
}

LaneCut lane_cut(Linear linear) {
    return traits_of_linears[index_of(linear)].cut;
}

std::string module_path(std::int64_t layer, Linear linear) {
    if (linear == Linear::head) return module_name(linear);
    if (linear == Linear::embedding) return cat("model.", module_name(linear));
    return cat("model.layers.", layer, ".", traits_of_linears[index_of(linear)].block, ".",
               module_name(linear));
}

std::string module_path(std::int64_t layer, Linear linear, std::int32_t expert) {
    if (expert == no_expert) return module_path(layer, linear);
    return cat("model.layers.", layer, ".mlp.experts.", expert, ".", module_name(linear));
}

std::optional<Linear> linear_of_module(std::string_view path) {
    for (const Linear linear : outer_linears) {
        if (path == module_path(0, linear)) return linear;
    }
    const std::string_view name = take_last(path);
    std::string_view outside = path;
    take_last(outside);
    if (outside.ends_with(".experts")) {
        take_last(outside);
        path = outside;
    }
    for (int i = 0; i < linear_count; ++i) {
        const LinearTraits& traits = traits_of_linears[static_cast<std::size_t>(i)];
        const bool fits = path == traits.block || path.ends_with(cat(".", traits.block));
        if (name == traits.name && fits) return static_cast<Linear>(i);
    }
    return std::nullopt;
}

LayerLinear linear_of(const LayerSpec& layer, std::int64_t hidden_size, Linear linear) {
    const auto in = [&](const auto& kind) { return linear_in(kind, hidden_size, linear); };
    if (is_outer(linear)) return {};
    return is_in_mixer(linear) ? std::visit(in, layer.mixer) : std::visit(in, layer.mlp);
}

bool has_linear(const LayerSpec& layer, Linear linear) {
    const LayerLinear found = linear_of(layer, 1, linear);
    return found.is_there && !found.is_in_experts();
}

LayerLinear linear_of(const ModelSpec& spec, Linear linear) {
    return linear_in_model(spec, linear, false);
}

LinearShape linear_shape(const ModelSpec& spec, Linear linear) {
    return linear_of(spec, linear).shape;
}

bool has_linear(const ModelSpec& spec, Linear linear) {
    return linear_of(spec, linear).is_there;
}

std::string target_name(const ModelSpec& spec, Linear linear) {
    const LinearTraits& traits = traits_of_linears[index_of(linear)];
    for (int i = 0; i < linear_count; ++i) {
        const auto other = static_cast<Linear>(i);
        const std::string_view name = module_name(other);
        if (is_in_mixer(other) == is_in_mixer(linear) || name != traits.name) continue;
        if (!has_target(spec, other)) continue;
        return cat(traits.block, ".", traits.name);
    }
    return traits.name;
}

std::vector<std::string> linear_names(const ModelSpec& spec) {
    return names_where(spec, [&](Linear linear) { return has_linear(spec, linear); });
}

std::vector<std::string> target_names(const ModelSpec& spec) {
    return names_where(spec, [&](Linear linear) { return has_target(spec, linear); });
}

bool has_bias(const ModelSpec& spec, Linear linear) {
    return linear_in_model(spec, linear, false).bias;
}

bool is_in_experts(const ModelSpec& spec, Linear linear) {
    return linear_in_model(spec, linear, true).is_there;
}

bool is_beside_experts(const ModelSpec& spec, Linear linear) {
    const bool of_mlp = !is_outer(linear) && !is_in_mixer(linear);
    return of_mlp && has_experts(spec) && has_linear(spec, linear);
}

bool has_target(const ModelSpec& spec, Linear linear) {
    return has_linear(spec, linear) || is_in_experts(spec, linear);
}

LayerLinear target_of(const ModelSpec& spec, std::int64_t layer, Linear linear) {
    if (linear == Linear::head) return {true, {spec.hidden_size, spec.vocab_size}};
    if (linear == Linear::embedding) return {true, {spec.vocab_size, spec.hidden_size}};
    return linear_of(spec.layer(std::min(layer, spec.layers - 1)), spec.hidden_size, linear);
}

std::int64_t matmul_parameters(const LayerSpec& layer, std::int64_t hidden_size) {
    const ExpertSpec* experts = layer.experts();
    if (experts == nullptr) return parameters(layer, hidden_size, 0);
    return parameters(layer, hidden_size, experts->per_token * experts->held(), experts->count);
}

std::int64_t matmul_parameters(const ModelSpec& spec) {
    std::int64_t count = spec.vocab_size * spec.hidden_size;
    for_layers(spec, 0, spec.layers, [&](const LayerSpec& layer, std::int64_t layers) {
        count += layers * matmul_parameters(layer, spec.hidden_size);
    });
    return count;
}

std::int64_t held_parameters(const ModelSpec& spec) {
    std::int64_t count = spec.vocab_size * spec.hidden_size;
    for_layers(spec, 0, spec.layers, [&](const LayerSpec& layer, std::int64_t layers) {
        const ExpertSpec* experts = layer.experts();
        const std::int64_t held = experts != nullptr ? experts->held() : 0;
        count += layers * parameters(layer, spec.hidden_size, held);
    });
    return count;
}

}  // namespace loratrain
