#include "io/weights/hf_experts.h"

#include <algorithm>
#include <iterator>
#include <string_view>

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

void read_first_dense(JsonReader& config, std::vector<LayerTraits>& layers) {
    const char* key = "first_k_dense_replace";
    const bool none = config.has(key) && config.get(key) == 0;
    const std::int64_t first = none ? 0 : config.has(key) ? config.required_count(key) : 1;
    for (std::int64_t i = 0; i < std::min(first, std::ssize(layers)); ++i) {
        layers[static_cast<std::size_t>(i)].is_dense = true;
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
        return read_first_dense(config, layers);
    }
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
