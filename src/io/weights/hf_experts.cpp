#include "io/weights/hf_experts.h"

#include <algorithm>

#include "base/error.h"
#include "base/operators.h"

namespace loratrain {

namespace {

constexpr const char* count_keys[] = {"num_experts", "num_local_experts", "n_routed_experts"};

/// Of a family without experts.
void refuse_experts(JsonReader& config) {
    for (const char* key : count_keys) {
        if (config.has(key) && config.get(key) != 0) {
            config.wrong(key, "a mixture of experts",
                         "import a model without experts, or of model_type qwen3_moe");
        }
    }
}

void refuse_other_parts(JsonReader& config, const Family& family) {
    for (const char* key :
         {"shared_expert_intermediate_size", "n_shared_experts", "num_shared_experts"}) {
        if (config.has(key) && config.get(key) != 0) {
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

}  // namespace

std::optional<ExpertSpec> read_experts(JsonReader& config, const Family& family,
                                       const ClassSizes& sizes) {
    if (!family.experts.exists()) {
        refuse_experts(config);
        return std::nullopt;
    }
    refuse_other_parts(config, family);
    const char* key = config.has("num_experts") ? "num_experts" : "num_local_experts";
    const Json& other = config.get("num_local_experts");
    if (!other.is_null() && other != config.get(key)) {
        config.wrong(key, cat("but num_local_experts is ", json_text(other)), "remove one of them");
    }
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
