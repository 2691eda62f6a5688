#include "io/weights/hf_latent.h"

#include <cmath>

#include "base/text.h"
#include "io/json_text.h"

namespace loratrain {

namespace {

/// A null means that queries have no latent row.
std::int64_t read_q_rank(JsonReader& config, std::int64_t missing) {
    constexpr const char* key = "q_lora_rank";
    if (config.has(key)) return config.required_count(key);
    return config.contains(key) ? 0 : missing;
}

/// By what yarn_apply_mscale of transformers multiplies the scores.
double scale_of_scores(JsonReader& config, double factor) {
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        const Json& settings = config.get(key);
        if (!settings.is_object() || settings.empty()) continue;
        const Json type = settings.value("rope_type", settings.value("type", Json("default")));
        const Json all = settings.value("mscale_all_dim", Json());
        if (type == "default" || !all.is_number() || factor <= 1.0) return 1.0;
        const double length = all == 0 ? 1.0 : 0.1 * all.get<double>() * std::log(factor) + 1.0;
        return length * length;
    }
    return 1.0;
}

/// The share of `columns` that makes `of` of them rotate.
double share_of(std::int64_t of, std::int64_t columns) {
    RopeSpec rope;
    rope.rotated = static_cast<double>(of) / static_cast<double>(columns);
    if (rotary_dim(columns, rope) < of) rope.rotated = std::nextafter(rope.rotated, 1.0);
    return rope.rotated;
}

}  // namespace

void read_latent(JsonReader& config, const Family& family, AttentionSpec& attention) {
    LatentSpec latent = *family.attention.latent;
    std::int64_t nope = family.attention.nope_dim();
    latent.q_rank = read_q_rank(config, latent.q_rank);
    const auto read = [&](const char* key, std::int64_t& value) {
        if (config.has(key)) value = config.required_count(key);
    };
    read("kv_lora_rank", latent.kv_rank);
    read("qk_nope_head_dim", nope);
    read("qk_rope_head_dim", latent.rope_dim);
    read("v_head_dim", latent.value_dim);
    attention.latent = latent;
    attention.head_dim = nope + latent.rope_dim;
    if (latent.rope_dim % 2 != 0) {
        config.wrong("qk_rope_head_dim", "is odd; rotary positions need pairs");
    }
    if (latent.value_dim > attention.head_dim) {
        config.wrong("v_head_dim",
                     cat("is more than qk_nope_head_dim and qk_rope_head_dim together, ",
                         attention.head_dim),
                     "this kind of model cannot be trained here");
    }
    if (attention.kv_heads != attention.heads) {
        config.wrong("num_key_value_heads",
                     cat("must be num_attention_heads, ", attention.heads,
                         ": every head of latent attention has keys of its own"));
    }
    const bool bias = config.has("attention_bias") && config.flag("attention_bias");
    if (bias && latent.q_rank == 0) {
        config.wrong("attention_bias", "with q_lora_rank null, which leaves q_proj without a bias",
                     "this kind of model cannot be trained here");
    }
}

Ropes read_latent_ropes(JsonReader& config, const Family& family, AttentionSpec& attention) {
    RopeDefaults defaults = family.rope;
    constexpr const char* interleaved = "rope_interleave";
    if (config.has(interleaved)) defaults.interleaved = config.flag(interleaved);
    Ropes ropes = read_ropes(config, defaults, attention.latent->rope_dim);
    const double dim = static_cast<double>(attention.head_dim);
    const double scale = scale_of_scores(config, ropes.full.factor);
    if (scale != 1.0) attention.multiplier = scale / std::sqrt(dim);
    for (RopeSpec* rope : {&ropes.full, &ropes.sliding}) {
        rope->rotated = share_of(attention.latent->rope_dim, attention.head_dim);
    }
    return ropes;
}

}  // namespace loratrain
