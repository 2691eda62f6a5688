#include "io/weights/hf_rope.h"

#include <cmath>
#include <string>
#include <vector>

#include "base/text.h"

namespace loratrain {

namespace {

constexpr const char* not_rotated_here = "this kind of model cannot be trained here";

std::int64_t read_original_positions(JsonReader& rope, JsonReader& config) {
    constexpr const char* original = "original_max_position_embeddings";
    return config.has(original) && !rope.has(original) ? config.required_count(original)
                                                       : rope.required_count(original);
}

/// By how much q and k get longer, where attention_factor does not say.
double yarn_length(JsonReader& rope, double factor) {
    const auto length = [factor](double mscale) {
        return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
    };
    const auto one = rope.positive("mscale");
    const auto all = rope.positive("mscale_all_dim");
    return one && all ? length(*one) / length(*all) : length(1.0);
}

void read_yarn_rope(JsonReader& rope, JsonReader& config, RopeSpec& spec) {
    spec.beta_fast = rope.positive("beta_fast").value_or(spec.beta_fast);
    spec.beta_slow = rope.positive("beta_slow").value_or(spec.beta_slow);
    if (rope.has("truncate")) spec.truncate = rope.flag("truncate");
    spec.original_max_position = read_original_positions(rope, config);
    spec.attention_factor =
        rope.positive("attention_factor").value_or(yarn_length(rope, spec.factor));
}

void read_llama3_rope(JsonReader& rope, JsonReader& config, RopeSpec& spec) {
    spec.low_freq_factor = rope.required_positive("low_freq_factor");
    spec.high_freq_factor = rope.required_positive("high_freq_factor");
    spec.original_max_position = read_original_positions(rope, config);
    if (spec.high_freq_factor <= spec.low_freq_factor && !rope.get("high_freq_factor").is_null()) {
        rope.wrong("high_freq_factor", "must be greater than low_freq_factor");
    }
}

std::vector<double> read_factors(JsonReader& rope, const char* key) {
    const Json& list = rope.get(key);
    std::vector<double> factors;
    for (const Json& value : list.is_array() ? list : Json::array()) {
        if (value.is_number() && value.get<double>() > 0.0) factors.push_back(value.get<double>());
    }
    if (!list.is_array() || factors.size() != list.size()) {
        rope.wrong(key, "must be a list of numbers above 0");
    }
    return factors;
}

void read_longrope(JsonReader& rope, JsonReader& config, RopeSpec& spec) {
    spec.short_factors = read_factors(rope, "short_factor");
    spec.original_max_position = read_original_positions(rope, config);
    const auto original = static_cast<double>(spec.original_max_position);
    const Json& positions = config.get("max_position_embeddings");
    const double longer = positions.is_number() ? positions.get<double>() / original : 1.0;
    const double factor = rope.positive("factor").value_or(longer);
    const double length =
        factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(original));
    spec.attention_factor = rope.positive("attention_factor").value_or(length);
}

/// One object of rotary settings, in the older (`type`) or newer (`rope_type`) spelling.
RopeSpec read_rope_object(JsonReader& config, const Json& object, const std::string& key) {
    RopeSpec spec;
    if (!object.is_object()) {
        config.add(key + " must be an object");
        return spec;
    }
    JsonReader rope(object, config.where(), key + ".", config.problems());
    const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
    const std::string type = rope.text(type_key);
    const bool known_key = rope.has(type_key);
    if (rope.has("rope_theta")) spec.theta = rope.required_positive("rope_theta");
    const bool has_factor = type == "linear" || type == "llama3" || type == "yarn";
    if (has_factor) spec.factor = rope.required_positive("factor");
    if (rope.has("llama_4_scaling_beta")) {
        spec.query_beta = rope.required_positive("llama_4_scaling_beta");
        spec.original_max_position = read_original_positions(rope, config);
    }
    if (type == "linear") {
        spec.type = RopeType::linear;
    } else if (type == "llama3") {
        spec.type = RopeType::llama3;
        read_llama3_rope(rope, config, spec);
    } else if (type == "yarn") {
        spec.type = RopeType::yarn;
        read_yarn_rope(rope, config, spec);
    } else if (type == "longrope" || type == "su") {
        spec.type = RopeType::longrope;
        read_longrope(rope, config, spec);
    } else if (known_key && type != "default") {
        rope.wrong(type_key, "which is not supported",
                   "known types: default, linear, llama3, yarn, longrope");
    } else if (!known_key && (rope.has("factor") || !rope.has("rope_theta"))) {
        rope.add(key + " names no rope_type");
    }
    if (rope.has("partial_rotary_factor")) {
        spec.rotated = rope.required_positive("partial_rotary_factor");
    }
    return spec;
}

bool same_rope(const RopeSpec& a, const RopeSpec& b) {
    RopeSpec with_theta = b;
    with_theta.theta = a.theta;
    return a == with_theta;
}

void check_query_scale(JsonReader& config, const RopeDefaults& defaults, const RopeSpec& rope) {
    if (rope.query_beta != 0.0 && !defaults.scales_queries) {
        config.add("llama_4_scaling_beta is no setting of this family", not_rotated_here);
    }
    if (!defaults.must_be_told || config.has("rope_parameters") || config.has("rope_scaling")) {
        return;
    }
    config.add("rope_parameters are missing", "give those that the model was trained with");
}

RopeSpec read_rope(JsonReader& config, const RopeDefaults& defaults) {
    const bool newer = config.has("rope_parameters");
    const bool older = config.has("rope_scaling");
    RopeSpec spec;
    spec.theta = defaults.theta;
    if (config.has("rope_theta")) spec.theta = config.required_positive("rope_theta");
    const double outer_theta = spec.theta;
    if (newer || older) {
        const char* key = newer ? "rope_parameters" : "rope_scaling";
        spec = read_rope_object(config, config.get(key), key);
        const Json& object = config.get(key);
        if (!object.is_object() || !object.contains("rope_theta")) spec.theta = outer_theta;
    }
    if (newer && older &&
        !same_rope(spec, read_rope_object(config, config.get("rope_scaling"), "rope_scaling"))) {
        config.add("rope_parameters and rope_scaling contradict each other", "remove one of them");
    }
    return spec;
}

/// partial_rotary_factor of the rotary settings, else of the model, else of the family.
void read_rotated_part(JsonReader& config, const RopeDefaults& defaults, const ModelSpec& model,
                       RopeSpec& rope) {
    constexpr const char* key = "partial_rotary_factor";
    const Json& parameters = config.get("rope_parameters");
    const bool told = parameters.is_object() && parameters.contains(key);
    if (!told && config.has(key)) rope.rotated = config.required_positive(key);
    if (!told && !config.has(key) && defaults.rotated > 0.0) rope.rotated = defaults.rotated;
    rope.interleaved = defaults.interleaved;
    if (rope.rotated != 1.0 && defaults.rotated == 0.0) {
        config.add(cat(key, " is ", rope.rotated, ", must be 1 in this family"), not_rotated_here);
    }
    const std::int64_t dim = model.rotary_dim(rope);
    if (rope.rotated > 1.0 || (model.head_dim > 0 && (dim <= 0 || dim % 2 != 0))) {
        config.add(cat(key, " ", rope.rotated, " of head_dim ", model.head_dim, " is ", dim,
                       " columns; rotary positions need pairs"));
    }
}

void check_longrope(JsonReader& config, const RopeDefaults& defaults, const ModelSpec& model,
                    const RopeSpec& rope) {
    if (rope.type != RopeType::longrope) return;
    if (!defaults.longrope) config.add("longrope is no setting of this family", not_rotated_here);
    const std::int64_t pairs = model.rotary_dim(rope) / 2;
    if (std::ssize(rope.short_factors) == pairs) return;
    config.add(cat("short_factor has ", rope.short_factors.size(), " numbers, must have one for ",
                   "each of the ", pairs, " rotated pairs"));
}

/// rope_parameters by type of layer: {full_attention: {...}, sliding_attention: {...}}.
RopeSpec read_rope_of_type(JsonReader& config, const char* type, double theta) {
    const Json& object = config.get("rope_parameters");
    const auto found = object.find(type);
    RopeSpec spec;
    spec.theta = theta;
    if (found == object.end() || found->is_null()) return spec;
    spec = read_rope_object(config, *found, cat("rope_parameters.", type));
    if (!found->is_object() || !found->contains("rope_theta")) spec.theta = theta;
    return spec;
}

}  // namespace

void read_ropes(JsonReader& config, const RopeDefaults& defaults, ModelSpec& spec) {
    const Json& parameters = config.get("rope_parameters");
    const bool by_type = parameters.is_object() && (parameters.contains("full_attention") ||
                                                    parameters.contains("sliding_attention"));
    if (!defaults.by_layer_type) {
        spec.rope = read_rope(config, defaults);
        read_rotated_part(config, defaults, spec, spec.rope);
        check_longrope(config, defaults, spec, spec.rope);
        check_query_scale(config, defaults, spec.rope);
        return;
    }
    RopeSpec of_windows;
    if (by_type) {
        spec.rope = read_rope_of_type(config, "full_attention", defaults.theta);
        of_windows = read_rope_of_type(config, "sliding_attention", defaults.window_theta);
    } else {
        spec.rope = read_rope(config, defaults);
        const bool one_theta = defaults.window_theta == defaults.theta;
        of_windows.theta = config.positive("rope_local_base_freq")
                               .value_or(one_theta ? spec.rope.theta : defaults.window_theta);
    }
    for (RopeSpec* rope : {&spec.rope, &of_windows}) {
        read_rotated_part(config, defaults, spec, *rope);
        check_longrope(config, defaults, spec, *rope);
    }
    if (of_windows != spec.rope) spec.window_rope = of_windows;
}

}  // namespace loratrain
