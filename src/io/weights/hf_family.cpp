#include "io/weights/hf_family.h"

#include <string>
#include <vector>

#include "base/error.h"

namespace loratrain {

namespace {

// The defaults of the configuration classes in HF transformers.
constexpr Family families[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .reads_attention_bias = true,
     .reads_mlp_bias = true},
    {.name = "mistral",
     .architecture = "MistralForCausalLM",
     .kv_heads = 8,
     .windows = Windows::on_every_layer},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .kv_heads = 32,
     .qkv_bias = true,
     .windows = Windows::on_last_layers},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .head_dim = 128,
     .kv_heads = 32,
     .reads_attention_bias = true,
     .qk_norm = true,
     .windows = Windows::on_last_layers},
    {.name = "smollm3",
     .architecture = "SmolLM3ForCausalLM",
     .kv_heads = 4,
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .has_layers_without_rope = true,
     .tied = true,
     .rope = {.theta = 2000000.0},
     .windows = Windows::on_layers_without_rope,
     .window = 0},
    {.name = "granite",
     .architecture = "GraniteForCausalLM",
     .reads_attention_bias = true,
     .reads_mlp_bias = true,
     .reads_multipliers = true},
    {.name = "seed_oss",
     .architecture = "SeedOssForCausalLM",
     .head_dim = 128,
     .kv_heads = 8,
     .reads_out_bias = true,
     .reads_mlp_bias = true},
    {.name = "ministral3",
     .architecture = "Ministral3ForCausalLM",
     .head_dim = 128,
     .kv_heads = 8,
     .rope = {.theta = 1000000.0, .scales_queries = true, .must_be_told = true},
     .windows = Windows::on_every_layer,
     .window = 0,
     .eps = 1e-5},
    {.name = "olmo2",
     .architecture = "Olmo2ForCausalLM",
     .reads_attention_bias = true,
     .qk_norm = true,
     .eps = 1e-5,
     .qk_norm_whole = true,
     .norms = NormPlacement::after},
    {.name = "olmo3",
     .architecture = "Olmo3ForCausalLM",
     .reads_attention_bias = true,
     .qk_norm = true,
     .rope = {.theta = 500000.0, .by_layer_type = true, .window_theta = 500000.0},
     .windows = Windows::between_full_layers,
     .window_interval = 4,
     .eps = 1e-5,
     .qk_norm_whole = true,
     .norms = NormPlacement::after},
    {.name = "gemma2",
     .architecture = "Gemma2ForCausalLM",
     .head_dim = 256,
     .kv_heads = 4,
     .reads_attention_bias = true,
     .tied = true,
     .windows = Windows::between_full_layers,
     .window_interval = 2,
     .norms = NormPlacement::both,
     .norm_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .query_scalar = 256,
     .attention_soft_cap = 50.0,
     .logits_soft_cap = 30.0},
    {.name = "gemma3_text",
     .architecture = "Gemma3ForCausalLM",
     .head_dim = 256,
     .kv_heads = 4,
     .reads_attention_bias = true,
     .qk_norm = true,
     .tied = true,
     .rope = {.theta = 1000000.0, .by_layer_type = true, .window_theta = 10000.0},
     .windows = Windows::between_full_layers,
     .window_interval = 6,
     .norms = NormPlacement::both,
     .norm_plus_one = true,
     .activation_key = "hidden_activation",
     .activation = "gelu_pytorch_tanh",
     .query_scalar = 256},
    {.name = "glm4",
     .architecture = "Glm4ForCausalLM",
     .head_dim = 128,
     .kv_heads = 2,
     .reads_qkv_bias = true,
     .rope = {.rotated = 0.5, .interleaved = true},
     .eps = 1.5625e-7,
     .norms = NormPlacement::both,
     .norm_names = NormNames::glm4,
     .fused_gate_up = true},
    {.name = "phi3",
     .architecture = "Phi3ForCausalLM",
     .rope = {.rotated = 1.0, .longrope = true},
     .windows = Windows::on_every_layer,
     .window = 0,
     .eps = 1e-5,
     .fused_qkv = true,
     .fused_gate_up = true},
    {.name = "apertus",
     .architecture = "ApertusForCausalLM",
     .reads_attention_bias = true,
     .qk_norm = true,
     .rope = {.theta = 12000000.0, .must_be_told = true},
     .eps = 1e-5,
     .norm_names = NormNames::apertus,
     .activation = "xielu"},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .kv_heads = 4,
     .reads_attention_bias = true,
     .qk_norm = true,
     .has_experts = true},
};

constexpr Wrapper wrappers[] = {{"gemma3", "Gemma3ForConditionalGeneration"},
                                {"mistral3", "Mistral3ForConditionalGeneration"}};

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

std::span<const Wrapper> model_wrappers() {
    return wrappers;
}

const Family* find_family(JsonReader& config) {
    const std::string type = config.text("model_type");
    for (const Family& family : families) {
        if (type == family.name) return &family;
    }
    const std::string known = "model families that can be trained: " + join(family_names(), ", ");
    if (!config.has("model_type")) {
        config.add("'model_type' is missing", known);
    } else if (!type.empty()) {
        config.wrong("model_type", "which is not supported", known);
    }
    return nullptr;
}

}  // namespace loratrain
