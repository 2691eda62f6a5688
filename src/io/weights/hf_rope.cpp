#include "io/weights/hf_rope.h"

#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/text.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

constexpr const char* not_rotated_here = "this kind of model cannot be trained here";
constexpr const char* remove_one = "remove the one that the model was not trained with";
constexpr const char* original = "original_max_position_embeddings";
constexpr const char* rotated_part = "partial_rotary_factor";

/// Where an object of rotary settings stands.
struct RopeSource {
    JsonReader& config;
    const RopeDefaults& defaults;
    double theta;           ///< where nothing says it
    const char* theta_key;  ///< which says it beside the object; "" = none
    std::int64_t head_dim;
    bool of_type = false;  ///< of one type of layer
};

bool contradicts(JsonReader& config, const char* outer, JsonReader& rope, const char* inner) {
    if (!config.has(outer) || !rope.has(inner) || config.get(outer) == rope.get(inner))
        return false;
    rope.wrong(inner, cat("but ", outer, " is ", json_text(config.get(outer))), remove_one);
    return true;
}

std::int64_t positions_of(const RopeSource& source) {
    constexpr const char* key = "max_position_embeddings";
    return source.config.has(key) ? source.config.required_count(key) : source.defaults.positions;
}

/// transformers takes what stands beside the settings before what they say.
std::int64_t read_original_positions(JsonReader& rope, const RopeSource& source) {
    if (contradicts(source.config, original, rope, original)) return 0;
    if (source.config.has(original) && !source.of_type) {
        return source.config.required_count(original);
    }
    const std::int64_t missing = source.defaults.original_positions;
    if (missing > 0 && rope.has(original) && rope.get(original) != missing) {
        rope.wrong(original,
                   cat("which transformers does not read there, but beside it: ", missing,
                       " where it is missing"),
                   cat("write ", original, " beside it"));
    }
    if (missing > 0) return missing;
    return rope.has(original) ? rope.required_count(original) : positions_of(source);
}

/// Where 0 means the same as a missing key.
std::optional<double> positive_or_none(JsonReader& rope, const char* key) {
    if (rope.get(key) == 0) return std::nullopt;
    return rope.positive(key);
}

/// By how much q and k get longer, where attention_factor does not say.
double yarn_length(JsonReader& rope, double factor) {
    const auto length = [factor](double mscale) {
        return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
    };
    const auto one = positive_or_none(rope, "mscale");
    const auto all = positive_or_none(rope, "mscale_all_dim");
    return one && all ? length(*one) / length(*all) : length(1.0);
}

void read_yarn_rope(JsonReader& rope, const RopeSource& source, RopeSpec& spec) {
    spec.beta_fast = positive_or_none(rope, "beta_fast").value_or(spec.beta_fast);
    spec.beta_slow = positive_or_none(rope, "beta_slow").value_or(spec.beta_slow);
    if (rope.has("truncate")) spec.truncate = rope.flag("truncate");
    spec.original_max_position = read_original_positions(rope, source);
    if (rope.contains("factor") && !rope.has("factor") && spec.original_max_position > 0) {
        spec.factor = static_cast<double>(positions_of(source)) /
                      static_cast<double>(spec.original_max_position);
    } else {
        spec.factor = rope.required_positive("factor");
    }
    spec.attention_factor =
        rope.positive("attention_factor").value_or(yarn_length(rope, spec.factor));
}

void read_llama3_rope(JsonReader& rope, const RopeSource& source, RopeSpec& spec) {
    spec.factor = rope.required_positive("factor");
    spec.low_freq_factor = rope.required_positive("low_freq_factor");
    spec.high_freq_factor = rope.required_positive("high_freq_factor");
    spec.original_max_position = read_original_positions(rope, source);
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
    if (!factors.empty() && factors.size() == list.size()) return factors;
    rope.wrong(key, "must be a list of numbers above 0");
    return {};
}

void read_longrope(JsonReader& rope, const RopeSource& source, RopeSpec& spec) {
    spec.short_factors = read_factors(rope, "short_factor");
    spec.long_factors = read_factors(rope, "long_factor");
    spec.original_max_position = read_original_positions(rope, source);
    const auto trained = static_cast<double>(spec.original_max_position);
    const double longer = static_cast<double>(positions_of(source)) / trained;
    const double factor = rope.positive("factor").value_or(longer);
    const double length =
        factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(trained));
    spec.attention_factor = rope.positive("attention_factor").value_or(length);
}

/// rope_type, or as older files have it, type; "" where neither is there.
std::string read_rope_type(JsonReader& rope, const RopeDefaults& defaults) {
    const auto named = [&](const char* key) {
        const std::string type = rope.text(key);
        if (type == "mrope" && defaults.by_axes) return std::string("default");
        const bool older_name = type == "su" || (type == "yarn" && defaults.longrope);
        return older_name ? std::string("longrope") : type;
    };
    const std::string newer = named("rope_type");
    const std::string older = named("type");
    if (!newer.empty() && !older.empty() && newer != older) {
        rope.wrong("type", cat("but rope_type is ", json_text(rope.get("rope_type"))), remove_one);
    }
    return newer.empty() ? older : newer;
}

void read_typed_rope(JsonReader& rope, const std::string& type, const RopeSource& source,
                     RopeSpec& spec) {
    if (source.defaults.longrope && type != "longrope") {
        rope.add(cat("rope_type is \"", type, "\", this family has longrope or default"),
                 not_rotated_here);
    } else if (type == "dynamic" && source.defaults.stretches_theta && rope.has("alpha")) {
        const auto dim = static_cast<double>(source.head_dim);
        if (dim > 2.0) spec.theta *= std::pow(rope.required_positive("alpha"), dim / (dim - 2.0));
    } else if (type == "linear") {
        spec.type = RopeType::linear;
        spec.factor = rope.required_positive("factor");
    } else if (type == "llama3") {
        spec.type = RopeType::llama3;
        read_llama3_rope(rope, source, spec);
    } else if (type == "yarn") {
        spec.type = RopeType::yarn;
        read_yarn_rope(rope, source, spec);
    } else if (type == "longrope") {
        spec.type = RopeType::longrope;
        read_longrope(rope, source, spec);
    } else {
        rope.wrong(rope.has("rope_type") ? "rope_type" : "type", "which is not supported",
                   "known types: default, linear, llama3, yarn, longrope");
    }
}

/// partial_rotary_factor of the settings, else beside them, else of the family.
double read_rotated_part(JsonReader& rope, const RopeSource& source) {
    contradicts(source.config, rotated_part, rope, rotated_part);
    if (rope.has(rotated_part)) return rope.required_positive(rotated_part);
    if (source.config.has(rotated_part)) return source.config.required_positive(rotated_part);
    return source.defaults.rotated > 0.0 ? source.defaults.rotated : 1.0;
}

/// One object of rotary settings, in the older (`type`) or newer (`rope_type`) spelling.
RopeSpec read_rope_object(const RopeSource& source, const Json& object, const std::string& key) {
    JsonReader& config = source.config;
    RopeSpec spec;
    if (!object.is_object()) {
        config.add(key + " must be an object");
        return spec;
    }
    JsonReader rope(object, config.where(), key + ".", config.problems());
    const std::string type = read_rope_type(rope, source.defaults);
    contradicts(config, source.theta_key, rope, "rope_theta");
    spec.theta = source.theta;
    if (config.has(source.theta_key)) spec.theta = config.required_positive(source.theta_key);
    if (rope.has("rope_theta")) spec.theta = rope.required_positive("rope_theta");
    if (const auto beta = positive_or_none(rope, "llama_4_scaling_beta")) {
        spec.query_beta = *beta;
        spec.original_max_position = read_original_positions(rope, source);
    }
    const bool named = rope.has("rope_type") || rope.has("type");
    const bool bare = !rope.has("rope_theta") && !rope.has(rotated_part) && !object.empty();
    if (named && type != "default") {
        read_typed_rope(rope, type, source, spec);
    } else if (!named && (rope.has("factor") || bare)) {
        rope.add(key + " names no rope_type");
    }
    spec.rotated = read_rotated_part(rope, source);
    spec.interleaved = source.defaults.interleaved;
    return spec;
}

/// What two settings do not have alike: "rope_theta is 10000 and 500000".
std::string difference(const RopeSpec& a, const RopeSpec& b) {
    const std::tuple<const char*, double, double> numbers[] = {
        {"rope_theta", a.theta, b.theta},
        {"factor", a.factor, b.factor},
        {original, static_cast<double>(a.original_max_position),
         static_cast<double>(b.original_max_position)},
        {rotated_part, a.rotated, b.rotated}};
    for (const auto& [name, one, other] : numbers) {
        if (one != other)
            return cat(": ", name, " is ", format_exact(one), " and ", format_exact(other));
    }
    return "";
}

/// Settings where config.json has none: those of the family.
RopeSpec read_missing_rope(const RopeSource& source) {
    const Json settings = parse_json(source.defaults.settings, "rope_parameters");
    JsonReader& config = source.config;
    RopeSource alone = source;
    if (settings.contains("rope_theta")) {
        alone.theta_key = "";
        if (config.has("rope_theta") && config.get("rope_theta") != settings["rope_theta"]) {
            config.add(cat("rope_parameters are missing, and rope_theta ",
                           json_text(config.get("rope_theta")),
                           " is not what transformers reads without them: ", json_text(settings)),
                       "give those that the model was trained with");
        }
    }
    return read_rope_object(alone, settings, "rope_parameters");
}

bool is_given(const Json& settings) {
    return !settings.is_null() && !(settings.is_object() && settings.empty());
}

RopeSpec read_rope(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim) {
    const RopeSource source{config, defaults, defaults.theta, "rope_theta", head_dim};
    std::vector<RopeSpec> given;
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        if (!is_given(config.get(key))) continue;
        given.push_back(read_rope_object(source, config.get(key), key));
    }
    if (given.empty()) return read_missing_rope(source);
    if (given.front() != given.back()) {
        config.add(cat("rope_parameters and rope_scaling contradict each other",
                       difference(given.front(), given.back())),
                   "remove one of them");
    }
    return given.front();
}

void check_rotated_part(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim,
                        const RopeSpec& rope) {
    if (rope.rotated != 1.0 && defaults.rotated == 0.0) {
        config.add(cat(rotated_part, " is ", rope.rotated, ", must be 1 in this family"),
                   not_rotated_here);
    }
    const std::int64_t dim = rotary_dim(head_dim, rope);
    if (rope.rotated > 1.0 || (head_dim > 0 && (dim <= 0 || dim % 2 != 0))) {
        config.add(cat(rotated_part, " ", rope.rotated, " of head_dim ", head_dim, " is ", dim,
                       " columns; rotary positions need pairs"));
    }
}

void check_longrope(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim,
                    const RopeSpec& rope) {
    if (rope.type != RopeType::longrope) return;
    if (!defaults.longrope)
        config.add("longrope is not a setting of this family", not_rotated_here);
    const std::int64_t pairs = rotary_dim(head_dim, rope) / 2;
    const auto check = [&](const char* key, const std::vector<double>& factors) {
        if (factors.empty() || std::ssize(factors) == pairs) return;
        config.add(cat(key, " has ", factors.size(), " numbers, must have one for each of the ",
                       pairs, " rotated pairs"));
    };
    check("short_factor", rope.short_factors);
    check("long_factor", rope.long_factors);
}

void check_rope(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim,
                const RopeSpec& rope) {
    check_rotated_part(config, defaults, head_dim, rope);
    check_longrope(config, defaults, head_dim, rope);
    if (rope.query_beta != 0.0 && !defaults.scales_queries) {
        config.add("llama_4_scaling_beta is not a setting of this family", not_rotated_here);
    }
}

/// rope_parameters by type of layer, {full_attention: {...}, sliding_attention: {...}}; {} where
/// there are none.
Json settings_by_type(JsonReader& config) {
    const Json& settings = config.get("rope_parameters");
    if (!is_given(settings)) return Json::object();
    const auto has_type = [&](const char* type) { return settings.contains(type); };
    if (settings.is_object() && (has_type("full_attention") || has_type("sliding_attention"))) {
        return settings;
    }
    config.add(
        "rope_parameters must be {full_attention: {...}, sliding_attention: {...}}: transformers "
        "reads nothing else of them in this family",
        "write them so, or as rope_theta and rope_scaling");
    return Json::object();
}

/// Of full_attention, where rope_scaling may stand as well.
Json with_rope_scaling(JsonReader& config, Json settings) {
    const Json& scaling = config.get("rope_scaling");
    if (!is_given(scaling)) return settings;
    if (!scaling.is_object()) {
        config.add("rope_scaling must be an object");
        return settings;
    }
    if (scaling.contains("type") && !scaling.contains("rope_type") && settings.empty()) {
        config.add("rope_scaling.type is not what transformers reads in this family",
                   "write rope_type");
    }
    for (const auto& [key, value] : scaling.items()) {
        const auto [at, added] = settings.emplace(key, value);
        if (added || *at == value) continue;
        config.add(cat("rope_scaling.", key, " is ", json_text(value),
                       ", but rope_parameters.full_attention.", key, " is ", json_text(*at)),
                   remove_one);
    }
    return settings;
}

}  // namespace

Ropes read_ropes(JsonReader& config, const RopeDefaults& defaults, std::int64_t head_dim) {
    if (!defaults.by_layer_type) {
        const RopeSpec rope = read_rope(config, defaults, head_dim);
        check_rope(config, defaults, head_dim, rope);
        return {rope, rope};
    }
    const Json by_type = settings_by_type(config);
    const auto of_type = [&](const char* type) {
        const auto found = by_type.find(type);
        return found == by_type.end() || found->is_null() ? Json::object() : *found;
    };
    Json full = of_type("full_attention");
    if (full.is_object()) full = with_rope_scaling(config, full);
    const bool inside = by_type.contains("full_attention");
    Ropes ropes;
    ropes.full = read_rope_object({config, defaults, defaults.theta, "rope_theta", head_dim, true},
                                  full, inside ? "rope_parameters.full_attention" : "rope_scaling");
    ropes.sliding = read_rope_object(
        {config, defaults, defaults.sliding_theta, defaults.sliding_theta_key, head_dim, true},
        of_type("sliding_attention"), "rope_parameters.sliding_attention");
    for (const RopeSpec& rope : {ropes.full, ropes.sliding}) {
        check_rope(config, defaults, head_dim, rope);
    }
    return ropes;
}

}  // namespace loratrain
