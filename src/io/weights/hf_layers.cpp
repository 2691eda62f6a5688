#include "io/weights/hf_layers.h"

#include <algorithm>

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
                    std::int64_t layer) {
    if (family.sliding_windows == SlidingWindows::on_layers_without_rope) return !traits.rotates;
    if (family.sliding_windows == SlidingWindows::between_full_layers) {
        const Json& pattern = config.get(family.sliding_interval_key);
        const std::int64_t interval = pattern.is_number_unsigned() && pattern != 0
                                          ? pattern.get<std::int64_t>()
                                          : family.sliding_interval;
        return (layer + 1) % interval != 0;
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
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const bool is_listed = types.is_array() && i < types.size();
        const bool slides =
            is_listed ? types[i] == "sliding_attention"
                      : slides_by_rule(config, family, layers[i], static_cast<std::int64_t>(i));
        if (slides) layers[i].sliding_window = sliding_window;
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

}  // namespace loratrain
