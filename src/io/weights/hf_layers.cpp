#include "io/weights/hf_layers.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/operators.h"

namespace loratrain {

namespace {

/// sliding_window where it is switched on, else 0.
std::int64_t active_sliding_window(JsonReader& config, const Family& family) {
    if (family.sliding_windows == SlidingWindows::never) return 0;
    const bool has_switch = family.sliding_windows == SlidingWindows::on_last_layers ||
                            family.sliding_windows == SlidingWindows::on_layers_without_rope;
    if (has_switch && !config.flag("use_sliding_window")) return 0;
    if (!config.contains("sliding_window")) return family.sliding_window;
    return config.count("sliding_window").value_or(0);
}

/// Where layer_types does not say.
bool slides_by_rule(JsonReader& config, const Family& family, const LayerTraits& traits,
                    std::int64_t layer, std::int64_t interval) {
    if (family.sliding_windows == SlidingWindows::on_layers_without_rope) return !traits.rotates;
    if (family.sliding_windows == SlidingWindows::between_full_layers) {
        return interval > 0 && (layer + 1) % interval != 0;
    }
    if (family.sliding_windows != SlidingWindows::on_last_layers) return true;
    const Json& first = config.get("max_window_layers");
    return layer >=
           (first.is_number_unsigned() ? first.get<std::int64_t>() : family.first_sliding_layer);
}

/// layer_types: for every layer full_attention, or what else the family has.
void check_layer_types(JsonReader& config, const Family& family, std::int64_t layers,
                       std::int64_t sliding_window) {
    const Json& types = config.get("layer_types");
    if (types.is_null()) return;
    const bool may_slide = family.sliding_windows != SlidingWindows::never;
    const bool may_delta = family.has_delta_nets();
    const auto is_known = [&](const Json& type) {
        return type == "full_attention" || (may_slide && type == "sliding_attention") ||
               (may_delta && type == "linear_attention");
    };
    const auto is_of = [&](const char* what) {
        return [what](const Json& type) { return type == what; };
    };
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), is_known)) {
        config.wrong(
            "layer_types",
            cat("every layer must have full_attention", may_slide ? " or sliding_attention" : "",
                may_delta ? " or linear_attention" : ""),
            "other kinds of layers are not supported for this family");
    } else if (std::ssize(types) != layers) {
        config.wrong("layer_types", cat("must have one for each of the ", layers, " layers"));
    } else if (sliding_window == 0 &&
               std::any_of(types.begin(), types.end(), is_of("sliding_attention"))) {
        config.wrong("layer_types", "names sliding_attention, but there is no sliding_window",
                     "give sliding_window (and use_sliding_window: true where the family has it)");
    } else if (sliding_window > 0 && family.sliding_windows == SlidingWindows::on_every_layer &&
               std::any_of(types.begin(), types.end(), is_of("full_attention"))) {
        config.wrong("layer_types",
                     cat("but sliding_window ", sliding_window, " is of every layer"),
                     "remove one of them");
    }
}

void read_sliding_windows(JsonReader& config, const Family& family,
                          std::vector<LayerTraits>& layers) {
    const std::int64_t sliding_window = active_sliding_window(config, family);
    check_layer_types(config, family, std::ssize(layers), sliding_window);
    if (sliding_window == 0) return;
    const Json& types = config.get("layer_types");
    const char* key = family.sliding_interval_key;
    const std::int64_t interval =
        !types.is_array() && config.has(key) ? config.required_count(key) : family.sliding_interval;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const bool is_listed = types.is_array() && i < types.size();
        const bool slides = is_listed ? types[i] == "sliding_attention"
                                      : slides_by_rule(config, family, layers[i],
                                                       static_cast<std::int64_t>(i), interval);
        if (slides) layers[i].sliding_window = sliding_window;
        if (family.rotates_windows_alone) layers[i].rotates = slides;
    }
}

/// linear_attention of layer_types, or all but every full_attention_interval-th.
void read_delta_layers(JsonReader& config, const Family& family, std::vector<LayerTraits>& layers) {
    if (!family.has_delta_nets()) return;
    constexpr const char* key = "full_attention_interval";
    const Json& types = config.get("layer_types");
    const std::int64_t interval = config.has(key) ? config.required_count(key) : 4;
    for (std::size_t i = 0; i < layers.size() && interval > 0; ++i) {
        const auto number = static_cast<std::int64_t>(i) + 1;
        const bool is_listed = types.is_array() && i < types.size();
        layers[i].has_delta = is_listed ? types[i] == "linear_attention" : number % interval != 0;
    }
}

/// no_rope_layers has a 1 for every layer with rotary positions and a 0 for every other one.
void read_layers_without_rope(JsonReader& config, const Family& family,
                              std::vector<LayerTraits>& layers) {
    if (!family.has_layers_without_rope) return;
    const std::size_t count = layers.size();
    const Json& list = config.get("no_rope_layers");
    const auto is_flag = [](const Json& value) { return value == 0 || value == 1; };
    if (list.is_null()) {
        constexpr std::int64_t family_default = 4;
        const bool given = config.has("no_rope_layer_interval");
        const auto interval = static_cast<std::size_t>(
            given ? config.required_count("no_rope_layer_interval") : family_default);
        for (std::size_t i = interval; interval > 0 && i <= count; i += interval) {
            layers[i - 1].rotates = false;
        }
    } else if (!list.is_array() || list.size() < count ||
               !std::all_of(list.begin(), list.end(), is_flag)) {
        config.wrong("no_rope_layers", cat("must be a list with a 1 (rotary positions) or a 0 for "
                                           "each of the ",
                                           count, " layers"));
    } else {
        for (std::size_t i = 0; i < count; ++i) layers[i].rotates = list[i] == 1;
    }
}

}  // namespace

std::vector<LayerTraits> read_layer_traits(JsonReader& config, const Family& family,
                                           std::int64_t layers) {
    std::vector<LayerTraits> traits(
        static_cast<std::size_t>(std::clamp<std::int64_t>(layers, 0, most_layers)));
    if (layers > most_layers) return traits;
    read_layers_without_rope(config, family, traits);
    read_sliding_windows(config, family, traits);
    read_delta_layers(config, family, traits);
    return traits;
}

std::optional<DeltaNetSpec> read_delta_net(JsonReader& config, const Family& family) {
    if (!family.has_delta_nets()) return std::nullopt;
    DeltaNetSpec net = family.delta_net;
    const auto read = [&](const char* key, std::int64_t& value) {
        if (config.has(key)) value = config.required_count(key);
    };
    read("linear_num_key_heads", net.key_heads);
    read("linear_num_value_heads", net.value_heads);
    read("linear_key_head_dim", net.key_dim);
    read("linear_value_head_dim", net.value_dim);
    read("linear_conv_kernel_dim", net.conv_width);
    if (net.key_heads > 0 && net.value_heads % net.key_heads != 0) {
        config.wrong("linear_num_value_heads",
                     cat("is not a multiple of linear_num_key_heads ", net.key_heads));
    }
    if (net.conv_width > most_conv_width) {
        config.wrong("linear_conv_kernel_dim", cat("must be at most ", most_conv_width));
    }
    for (const char* key : {"hidden_act", "output_gate_type"}) {
        const std::string activation = config.text(key);
        if (!activation.empty() && activation != "silu" && activation != "swish") {
            config.wrong(key, "only silu is supported in this family");
        }
    }
    if (config.has("attn_output_gate") && !config.flag("attn_output_gate")) {
        config.wrong("attn_output_gate", "must be true: attention of this family has output gates");
    }
    return net;
}

namespace {

constexpr const char* count_keys[] = {"num_experts", "num_local_experts", "n_routed_experts"};

/// Of a family without experts.
void refuse_experts(JsonReader& config) {
    for (const char* key : count_keys) {
        if (config.has(key) && config.get(key) != 0 && config.get(key) != 1) {
            config.wrong(key, "a mixture of experts",
                         "import a model without experts, or of a family with experts");
        }
    }
}

void refuse_other_parts(JsonReader& config, const Family& family) {
    const std::string_view own[] = {family.experts.shared_size_key,
                                    family.experts.shared_count_key};
    for (const char* key :
         {"shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts"}) {
        const bool read = std::find(std::begin(own), std::end(own), key) != std::end(own);
        if (!read && config.has(key) && config.get(key) != 0) {
            config.wrong(key, "experts that all tokens share are not supported");
        }
    }
    const bool slides = family.sliding_windows != SlidingWindows::never;
    if (!slides && config.has("use_sliding_window") && config.flag("use_sliding_window")) {
        config.wrong("use_sliding_window", "sliding windows are not supported for this family");
    }
    if (config.has("output_router_logits") && config.flag("output_router_logits")) {
        config.wrong("output_router_logits",
                     "asks for a loss that balances the router, which is frozen here",
                     "set it to false, as checkpoints have it");
    }
}

/// Which of the keys there is; of several the first, where all say the same.
const char* key_of_count(JsonReader& config) {
    const char* found = nullptr;
    for (const char* key : count_keys) {
        if (!config.has(key)) continue;
        if (found == nullptr) {
            found = key;
        } else if (config.get(key) != config.get(found)) {
            config.wrong(found, cat("but ", key, " is ", json_text(config.get(key))),
                         "remove one of them");
        }
    }
    return found != nullptr ? found : count_keys[0];
}

void read_shared(JsonReader& config, const ExpertFamily& family, ExpertSpec& experts) {
    if (config.has(family.shared_size_key)) {
        experts.shared_size = config.required_count(family.shared_size_key);
    }
    if (family.shared_count_key[0] == '\0') return;
    const bool given = config.has(family.shared_count_key);
    experts.shared_size =
        experts.size * (given ? config.required_count(family.shared_count_key) : 1);
}

void read_groups(JsonReader& config, ExpertSpec& experts) {
    if (config.has("n_group")) experts.groups = config.required_count("n_group");
    if (config.has("topk_group")) experts.used_groups = config.required_count("topk_group");
    experts.scale = config.positive("routed_scaling_factor").value_or(experts.scale);
    const std::int64_t of_group = experts.count / std::max<std::int64_t>(1, experts.groups);
    if (experts.groups > most_expert_groups || of_group * experts.groups != experts.count ||
        of_group < 2) {
        config.wrong("n_group",
                     cat("must be at most ", most_expert_groups,
                         " equal groups of two or more of the ", experts.count, " experts"));
    } else if (experts.used_groups > experts.groups ||
               experts.used_groups * of_group < experts.per_token) {
        config.wrong("topk_group", cat("must be some of the ", experts.groups,
                                       " groups of experts, with at least ", experts.per_token,
                                       " experts together"));
    }
}

constexpr const char* first_dense_key = "first_k_dense_replace";

void read_first_dense(JsonReader& config, std::int64_t missing, std::vector<LayerTraits>& layers) {
    const char* key = first_dense_key;
    const bool none = config.has(key) && config.get(key) == 0;
    const std::int64_t first = none ? 0 : config.has(key) ? config.required_count(key) : missing;
    for (std::int64_t i = 0; i < std::min(first, std::ssize(layers)); ++i) {
        layers[static_cast<std::size_t>(i)].is_dense = true;
    }
}

void read_listed_dense(JsonReader& config, std::vector<LayerTraits>& layers) {
    const char* key = "mlp_layer_types";
    const Json& types = config.get(key);
    if (types.is_null()) {
        if (!layers.empty()) layers.front().is_dense = true;
        if (config.has(first_dense_key) && config.get(first_dense_key) != 1) {
            config.wrong(first_dense_key,
                         cat("which transformers does not read in this family: ",
                             "the first layer alone has no experts"),
                         cat("write ", key, ", a list of dense and sparse for the layers"));
        }
        return;
    }
    const auto is_known = [](const Json& type) { return type == "dense" || type == "sparse"; };
    if (!types.is_array() || types.size() != layers.size() ||
        !std::all_of(types.begin(), types.end(), is_known)) {
        return config.wrong(key, cat("must be a list of dense or sparse for each of the ",
                                     layers.size(), " layers"));
    }
    for (std::size_t i = 0; i < layers.size(); ++i) layers[i].is_dense = types[i] == "dense";
}

/// Operators have them built in.
void check_clamps(JsonReader& config) {
    for (const auto& [key, value] :
         {std::pair{"swiglu_limit", swiglu_limit}, std::pair{"swiglu_alpha", swiglu_alpha}}) {
        const auto found = config.positive(key);
        if (!found || static_cast<float>(*found) == value) continue;
        config.wrong(key, cat("must be ", value), "this variant of the model is not supported");
    }
}

}  // namespace

std::optional<ExpertSpec> read_experts(JsonReader& config, const Family& family,
                                       const ClassSizes& sizes) {
    if (!family.experts.exists()) {
        refuse_experts(config);
        return std::nullopt;
    }
    refuse_other_parts(config, family);
    const char* key = key_of_count(config);
    const auto count = [&](const char* of, std::int64_t missing) {
        return config.has(of) ? config.required_count(of) : missing;
    };
    ExpertSpec experts = family.experts.missing;
    experts.count = count(key, experts.count);
    experts.per_token = count("num_experts_per_tok", experts.per_token);
    const bool own_size = experts.size > 0;
    experts.size = own_size ? count("moe_intermediate_size", experts.size) : sizes.intermediate;
    if (family.experts.reads_normalised && config.has("norm_topk_prob")) {
        experts.normalised = config.flag("norm_topk_prob");
    }
    if (experts.activation == Activation::clamped_swiglu) check_clamps(config);
    read_shared(config, family.experts, experts);
    if (family.experts.reads_groups) read_groups(config, experts);
    if (experts.count > most_experts) {
        config.wrong(key, cat("must be at most ", most_experts));
    }
    if (experts.per_token > std::min(experts.count, most_experts_per_token)) {
        config.wrong("num_experts_per_tok", cat("must be at most ", most_experts_per_token,
                                                " and the number of experts, ", experts.count));
    }
    return experts;
}

void read_dense_layers(JsonReader& config, const Family& family, std::vector<LayerTraits>& layers) {
    if (family.experts.layers == ExpertLayers::behind_first) {
        return read_first_dense(config, family.experts.first_dense, layers);
    }
    if (family.experts.layers == ExpertLayers::listed) return read_listed_dense(config, layers);
    if (family.experts.layers != ExpertLayers::by_steps) return;
    const bool given = config.has("decoder_sparse_step");
    const std::int64_t step = given ? config.required_count("decoder_sparse_step") : 1;
    const Json& dense = config.get("mlp_only_layers");
    const auto is_number = [](const Json& layer) { return layer.is_number_integer(); };
    if (!dense.is_null() &&
        !(dense.is_array() && std::all_of(dense.begin(), dense.end(), is_number))) {
        return config.wrong("mlp_only_layers", "must be a list of layers' numbers");
    }
    for (std::size_t i = 0; i < layers.size() && step > 0; ++i) {
        const bool sparse = (static_cast<std::int64_t>(i) + 1) % step == 0;
        layers[i].is_dense = !sparse || std::count(dense.begin(), dense.end(), i) > 0;
    }
}

}  // namespace loratrain
