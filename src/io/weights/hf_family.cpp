#include "io/weights/hf_family.h"

#include <vector>

#include "base/error.h"

namespace loratrain {

namespace {

constexpr const char* ministral_rope =
    R"({"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "mscale": 1.0,)"
    R"("original_max_position_embeddings": 16384, "mscale_all_dim": 1.0,)"
    R"("llama_4_scaling_beta": 0.1})";
constexpr const char* apertus_rope =
    R"({"rope_type": "llama3", "rope_theta": 12000000.0, "factor": 8.0, "low_freq_factor": 1.0,)"
    R"("original_max_position_embeddings": 8192, "high_freq_factor": 4.0})";
constexpr const char* gpt_oss_rope =
    R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,)"
    R"("truncate": false, "original_max_position_embeddings": 4096})";

/// The text model of Qwen2-VL and of Qwen2.5-VL.
constexpr Family qwen2_text(const char* name, const char* architecture) {
    return {.name = name,
            .architecture = architecture,
            .sizes = {152064, 8192, 29568, 80, 64},
            .kv_heads = 8,
            .attention = {.qkv_bias = true},
            .rope = {.positions = 32768, .theta = 1000000.0, .by_axes = true},
            .sliding_windows = SlidingWindows::on_last_layers,
            .first_sliding_layer = 80,
            .eps = 1e-5};
}

// The defaults of the configuration classes in HF transformers.
const Family families[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .sizes = {32000, 4096, 11008, 32, 32},
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .rope = {.positions = 2048},
     .vllm_embeddings = true},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .sizes = {32000, 4096, 14336, 32, 32},
     .kv_heads = 8,
     .rope = {.positions = 131072},
     .sliding_windows = SlidingWindows::on_every_layer},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .sizes = {151936, 4096, 22016, 32, 32},
     .kv_heads = 32,
     .attention = {.qkv_bias = true},
     .rope = {.positions = 32768},
     .sliding_windows = SlidingWindows::on_last_layers},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .sizes = {151936, 4096, 22016, 32, 32},
     .head_dim = 128,
     .kv_heads = 32,
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true},
     .rope = {.positions = 32768},
     .sliding_windows = SlidingWindows::on_last_layers,
     .vllm_embeddings = true},
    qwen2_text("qwen2_vl_text", "Qwen2VLTextModel"),
    qwen2_text("qwen2_5_vl_text", "Qwen2_5_VLTextModel"),
    {.name = "qwen3_vl_text",
     .architecture = "Qwen3VLTextModel",
     .sizes = {151936, 4096, 22016, 32, 32},
     .head_dim = 128,
     .kv_heads = 32,
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true},
     .rope = {.positions = 128000, .theta = 500000.0}},
    {.name = "qwen3_5_text",
     .architecture = "Qwen3_5ForCausalLM",
     .sizes = {248320, 4096, 12288, 32, 16},
     .head_dim = 256,
     .kv_heads = 4,
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true, .output_gate = true},
     .delta_net = {16, 32, 128, 128},
     .rope = {.positions = 32768, .rotated = 0.25},
     .norm_plus_one = true,
     .further_layers = {"mtp_num_hidden_layers", "mtp."},
     .vllm_embeddings = true},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .sizes = {128256, 2048, 11008, 36, 16, 128004},
     .kv_heads = 4,
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .has_layers_without_rope = true,
     .tied = true,
     .rope = {.positions = 32768, .theta = 2000000.0},
     .sliding_windows = SlidingWindows::on_layers_without_rope,
     .sliding_window = 0},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .sizes = {32000, 4096, 11008, 32, 32},
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .reads_multipliers = true,
     .rope = {.positions = 2048},
     .vllm_embeddings = true},
    {.name = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .sizes = {155136, 4096, 27648, 64, 80, 1},
     .head_dim = 128,
     .kv_heads = 8,
     .reads_out_bias = true,
     .mlp_bias_key = "mlp_bias",
     .rope = {.positions = 524288},
     .attention_dropout = {"attention_dropout", 0.1},
     .residual_dropout = {"residual_dropout", 0.1}},
    {.name = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .sizes = {131072, 4096, 14336, 34, 32, 11},
     .head_dim = 128,
     .kv_heads = 8,
     .rope = {.positions = 262144, .scales_queries = true, .settings = ministral_rope},
     .sliding_windows = SlidingWindows::on_every_layer,
     .sliding_window = 0,
     .eps = 1e-5},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .sizes = {50304, 4096, 11008, 32, 32, 1},
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true, .qk_norm_whole = true},
     .norms = {.placement = NormPlacement::after},
     .rope = {.positions = 2048},
     .eps = 1e-5},
    {.name = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .sizes = {50304, 4096, 11008, 32, 32, 1},
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true, .qk_norm_whole = true},
     .norms = {.placement = NormPlacement::after},
     .rope =
         {.positions = 2048, .theta = 500000.0, .by_layer_type = true, .sliding_theta = 500000.0},
     .sliding_windows = SlidingWindows::between_full_layers,
     .sliding_interval = 4,
     .eps = 1e-5},
    {.name = "exaone4",
     .architecture = "Exaone4ForCausalLM",
     .sizes = {102400, 4096, 16384, 32, 32},
     .kv_heads = 32,
     .rotates_windows_alone = true,
     .attention = {.qk_norm = true},
     .norms = {.placement = NormPlacement::after},
     .rope = {.positions = 2048},
     .sliding_windows = SlidingWindows::between_full_layers,
     .sliding_interval = 4,
     .sliding_interval_key = "sliding_window_pattern",
     .eps = 1e-5,
     .vllm_embeddings = true},
    {.name = "hunyuan_v1_dense",
     .architecture = "HunYuanDenseV1ForCausalLM",
     .sizes = {290943, 4096, 11008, 32, 32, 0},
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true, .qk_norm_behind_rope = true},
     .norms = {.names = NormNames::hunyuan},
     .rope = {.positions = 2048, .stretches_theta = true},
     .eps = 1e-5},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .sizes = {256000, 2304, 9216, 26, 8, 0},
     .head_dim = 256,
     .kv_heads = 4,
     .attention_bias_key = "attention_bias",
     .tied = true,
     .norms = {.placement = NormPlacement::both},
     .rope = {.positions = 8192},
     .sliding_windows = SlidingWindows::between_full_layers,
     .sliding_interval = 2,
     .norm_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .query_pre_attn_scalar = 256,
     .attention_soft_cap = 50.0,
     .logits_soft_cap = 30.0},
    {.name = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .sizes = {262208, 2304, 9216, 26, 8, 0},
     .head_dim = 256,
     .kv_heads = 4,
     .attention_bias_key = "attention_bias",
     .tied = true,
     .attention = {.qk_norm = true},
     .norms = {.placement = NormPlacement::both},
     .rope = {.positions = 131072,
              .theta = 1000000.0,
              .by_layer_type = true,
              .sliding_theta = 10000.0,
              .sliding_theta_key = "rope_local_base_freq"},
     .sliding_windows = SlidingWindows::between_full_layers,
     .sliding_interval = 6,
     .sliding_interval_key = "sliding_window_pattern",
     .norm_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .query_pre_attn_scalar = 256},
    {.name = "glm4",
     .architecture = "Glm4ForCausalLM",
     .sizes = {151552, 4096, 13696, 40, 32, 151329},
     .head_dim = 128,
     .kv_heads = 2,
     .qkv_bias_key = "attention_bias",
     .norms = {.placement = NormPlacement::both, .names = NormNames::glm4},
     .mlp = {.fused_gate_up = true},
     .rope = {.positions = 131072, .rotated = 0.5, .interleaved = true},
     .eps = 1.5625e-7},
    {.name = "ernie4_5",
     .architecture = "Ernie4_5ForCausalLM",
     .sizes = {103424, 1024, 3072, 18, 16, 0},
     .head_dim = 128,
     .kv_heads = 2,
     .attention_bias_key = "use_bias",
     .mlp_bias_key = "use_bias",
     .tied = true,
     .rope = {.positions = 131072, .theta = 500000.0, .interleaved = true},
     .eps = 1e-5,
     .attention_dropout = {},
     .vllm_embeddings = true},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .sizes = {32064, 3072, 8192, 32, 32, 32000},
     .attention = {.fused_qkv = true},
     .mlp = {.fused_gate_up = true},
     .rope = {.positions = 4096, .rotated = 1.0, .longrope = true, .original_positions = 4096},
     .sliding_windows = SlidingWindows::on_every_layer,
     .sliding_window = 0,
     .eps = 1e-5,
     .residual_dropout = {"resid_pdrop", 0.0}},
    {.name = "apertus",
     .architecture = "ApertusForCausalLM",
     .sizes = {131072, 4096, 14336, 32, 32, 3},
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true},
     .norms = {.names = NormNames::apertus},
     .rope = {.positions = 65536, .theta = 12000000.0, .settings = apertus_rope},
     .eps = 1e-5,
     .activation = "xielu",
     .vllm_embeddings = true},
    {.name = "arcee",
     .architecture = "ArceeForCausalLM",
     .sizes = {32000, 2560, 18432, 32, 32},
     .attention_bias_key = "attention_bias",
     .mlp_bias_key = "mlp_bias",
     .rope = {.positions = 4096},
     .eps = 1e-5,
     .activation = "relu2"},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .sizes = {151936, 2048, 6144, 24, 32},
     .kv_heads = 4,
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true},
     .rope = {.positions = 32768},
     .experts = {.missing = {.count = 128, .per_token = 8, .size = 768},
                 .layers = ExpertLayers::by_steps},
     .vllm_embeddings = true},
    {.name = "qwen3_next",
     .architecture = "Qwen3NextForCausalLM",
     .sizes = {151936, 2048, 5632, 48, 16},
     .head_dim = 256,
     .kv_heads = 2,
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true, .output_gate = true},
     .delta_net = {16, 32, 128, 128, 4, DeltaLinears::by_key_head},
     .rope = {.positions = 32768, .rotated = 0.25},
     .norm_plus_one = true,
     .experts = {.missing = {.count = 512,
                             .per_token = 10,
                             .size = 512,
                             .normalised = true,
                             .shared_size = 512,
                             .shared_gate = true},
                 .shared_size_key = "shared_expert_intermediate_size",
                 .layers = ExpertLayers::by_steps},
     .further_layers = {"mtp_num_hidden_layers", "mtp."}},
    {.name = "qwen3_5_moe_text",
     .architecture = "Qwen3_5MoeForCausalLM",
     .sizes = {.vocabulary = 248320, .hidden = 2048, .layers = 40, .heads = 16},
     .head_dim = 256,
     .kv_heads = 2,
     .attention_bias_key = "attention_bias",
     .attention = {.qk_norm = true, .output_gate = true},
     .delta_net = {16, 32, 128, 128},
     .rope = {.positions = 32768, .rotated = 0.25},
     .norm_plus_one = true,
     .experts = {.missing = {.count = 256,
                             .per_token = 8,
                             .size = 512,
                             .normalised = true,
                             .shared_size = 512,
                             .shared_gate = true},
                 .reads_normalised = false,
                 .shared_size_key = "shared_expert_intermediate_size",
                 .peft_converts = false},
     .further_layers = {"mtp_num_hidden_layers", "mtp."},
     .vllm_embeddings = true},
    {.name = "mixtral",
     .architecture = "MixtralForCausalLM",
     .sizes = {32000, 4096, 14336, 32, 32},
     .kv_heads = 8,
     .rope = {.positions = 131072, .theta = 1000000.0},
     .sliding_windows = SlidingWindows::on_every_layer,
     .sliding_window = 0,
     .eps = 1e-5,
     .residual_dropout = {"router_jitter_noise", 0.0},
     .experts = {.missing = {.count = 8,
                             .per_token = 2,
                             .normalised = true,
                             .names = ExpertNames::mixtral},
                 .reads_normalised = false},
     .vllm_embeddings = true},
    {.name = "granitemoe",
     .architecture = "GraniteMoeForCausalLM",
     .sizes = {32000, 4096, 11008, 32, 32},
     .attention_bias_key = "attention_bias",
     .reads_multipliers = true,
     .rope = {.positions = 2048},
     .experts = {.missing = {.count = 8,
                             .per_token = 2,
                             .normalised = true,
                             .names = ExpertNames::granitemoe},
                 .reads_normalised = false},
     .vllm_embeddings = true},
    {.name = "qwen2_moe",
     .architecture = "Qwen2MoeForCausalLM",
     .sizes = {151936, 2048, 5632, 24, 16},
     .kv_heads = 16,
     .qkv_bias_key = "qkv_bias",
     .rope = {.positions = 32768},
     .experts = {.missing = {.count = 60,
                             .per_token = 4,
                             .size = 1408,
                             .shared_size = 5632,
                             .shared_gate = true},
                 .shared_size_key = "shared_expert_intermediate_size",
                 .peft_converts = false,
                 .layers = ExpertLayers::by_steps}},
    {.name = "gpt_oss",
     .architecture = "GptOssForCausalLM",
     .sizes = {201088, 2880, 2880, 36, 64},
     .head_dim = 64,
     .kv_heads = 8,
     .attention_bias_key = "attention_bias",
     .attention_bias = true,
     .attention = {.sinks = true},
     .rope = {.positions = 131072, .theta = 150000.0, .settings = gpt_oss_rope},
     .sliding_windows = SlidingWindows::between_full_layers,
     .sliding_window = 128,
     .sliding_interval = 2,
     .eps = 1e-5,
     .experts = {.missing = {.count = 128,
                             .per_token = 4,
                             .normalised = true,
                             .activation = Activation::clamped_swiglu,
                             .names = ExpertNames::gpt_oss,
                             .router_bias = true,
                             .bias = true},
                 .reads_normalised = false}},
    {.name = "glm4_moe",
     .architecture = "Glm4MoeForCausalLM",
     .sizes = {151552, 4096, 10944, 46, 96},
     .kv_heads = 8,
     .qkv_bias_key = "attention_bias",
     .qkv_bias = false,
     .reads_qk_norm = true,
     .rope = {.positions = 131072, .rotated = 0.5},
     .eps = 1e-5,
     .experts = {.missing = {.count = 128,
                             .per_token = 8,
                             .size = 1408,
                             .normalised = true,
                             .names = ExpertNames::glm4_moe,
                             .scores = RouterScores::sigmoid,
                             .biased_choice = true,
                             .shared_size = 1408},
                 .reads_groups = true,
                 .shared_count_key = "n_shared_experts",
                 .layers = ExpertLayers::behind_first},
     .further_layers = {"num_nextn_predict_layers"}},
};

constexpr const char* visual = ".*visual.*";

constexpr Wrapper wrappers[] = {{"gemma3", "Gemma3ForConditionalGeneration", "gemma3_text", true},
                                {"mistral3", "Mistral3ForConditionalGeneration", "mistral", false},
                                {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text",
                                 false, TieKey::either, true, visual},
                                {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
                                 "qwen2_5_vl_text", false, TieKey::either, true, visual},
                                {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text",
                                 false, TieKey::outer_alone, false, visual},
                                {"qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text",
                                 false, TieKey::outer_alone, false, visual},
                                {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
                                 "qwen3_5_moe_text", false, TieKey::outer_alone, false, visual}};

std::vector<std::string> family_names() {
    std::vector<std::string> names;
    for (const Family& family : families) names.emplace_back(family.name);
    for (const Wrapper& wrapper : wrappers) names.emplace_back(wrapper.name);
    return names;
}

}  // namespace

std::span<const Family> model_families() {
    return families;
}

const Wrapper* wrapper_named(const std::string& name) {
    for (const Wrapper& wrapper : wrappers) {
        if (name == wrapper.name) return &wrapper;
    }
    return nullptr;
}

const Family* family_named(const std::string& name) {
    for (const Family& family : families) {
        if (name == family.name) return &family;
    }
    return nullptr;
}

bool peft_converts_targets(const ModelSpec& model) {
    const Family* family = family_named(model.family);
    return family == nullptr || family->experts.peft_converts;
}

const Family* find_family(JsonReader& config) {
    const std::string type = config.text("model_type");
    if (const Family* family = family_named(type)) return family;
    const std::string known = "model families that can be trained: " + join(family_names(), ", ");
    if (!config.has("model_type")) {
        config.add("'model_type' is missing", known);
    } else if (!type.empty()) {
        config.wrong("model_type", "which is not supported", known);
    }
    return nullptr;
}

std::array<FamilySize, 5> family_sizes(const Family& family) {
    return {{{"vocab_size", &ClassSizes::vocabulary, family.sizes.vocabulary},
             {"hidden_size", &ClassSizes::hidden, family.sizes.hidden},
             {"intermediate_size", &ClassSizes::intermediate, family.sizes.intermediate},
             {"num_hidden_layers", &ClassSizes::layers, family.sizes.layers},
             {"num_attention_heads", &ClassSizes::heads, family.sizes.heads}}};
}

namespace {

bool says_tied(const Json& config) {
    const auto found = config.find("tie_word_embeddings");
    return found != config.end() && *found == true;
}

/// tie_word_embeddings of the text model.
Json tied_embeddings(const Json& outer, const Json& text, const Wrapper& wrapper) {
    constexpr const char* key = "tie_word_embeddings";
    if (wrapper.tie_key == TieKey::either && says_tied(text)) return true;
    if (outer.contains(key)) return outer[key];
    const bool reads_text = wrapper.tie_key == TieKey::outer_first && text.contains(key);
    return reads_text ? text[key] : Json(wrapper.tied);
}

}  // namespace

const Wrapper* wrapper_of(const Json& document) {
    const auto type = document.find("model_type");
    const bool named = type != document.end() && type->is_string();
    return named ? wrapper_named(type->get<std::string>()) : nullptr;
}

Json text_config(const Json& document, const Wrapper& wrapper, const std::string& where) {
    const auto found = document.find("text_config");
    const bool inside = found != document.end() && found->is_object();
    if (!inside && !wrapper.flat) {
        throw InputError(where, cat("has no text_config, which a ", wrapper.name, " has"),
                         "give the config.json of the whole model");
    }
    Json text = inside ? *found : document;
    text.erase("architectures");
    if (!inside) text.erase("model_type");
    if (!text.contains("model_type")) text["model_type"] = wrapper.inner;
    text["tie_word_embeddings"] = tied_embeddings(document, text, wrapper);
    const auto quantization = document.find("quantization_config");
    if (quantization != document.end()) text["quantization_config"] = *quantization;
    return text;
}

Json text_document(const Json& document, const std::string& where) {
    const Wrapper* wrapper = wrapper_of(document);
    return wrapper != nullptr ? text_config(document, *wrapper, where) : document;
}

}  // namespace loratrain
